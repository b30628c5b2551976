"""Operations to use inside a model. On PyTorch's own tensors each has the result that the compiled one has.

While a model is compiled, the state of the compilation (`_impl.current()`) notes what an operation says about
its operand: a loss, a checkpoint, a share of memory. Those that compute are made of PyTorch's operators.
"""

import torch

from . import _impl
from ._arguments import map_structure
from ._control_flow import CPU, cond, for_loop
from ._custom_op import custom_op, registerCustomOp
from ._decoding import ctc_beam_search_decoder
from ._errors import createPoptorchError
from ._multi_conv import MultiConv
from ._points import fps, nearest
from ._print_tensor import ipu_print_tensor
from .enums import MatMulSerializationMode, OverlapMode

__all__ = [
    "CPU", "MultiConv", "NameScope", "cond", "ctc_beam_search_decoder", "custom_op", "dynamic_slice",
    "dynamic_update", "for_loop", "fps", "identity_loss", "internal_cast", "ipu_print_tensor", "nearest", "nop",
    "recomputationCheckpoint", "registerCustomOp", "serializedMatMul", "set_available_memory",
    "set_overlap_for_input", "set_overlap_for_output",
]


def identity_loss(x, reduction="none"):
    """Marks the loss: gradients start here. `reduction`: "sum", "mean" or "none"."""
    reductions = {"sum": lambda: x.sum(), "mean": lambda: x.mean(), "none": lambda: x * 1}
    number = {0: "sum", 1: "mean", 2: "none"}
    reduction = number.get(reduction, reduction)
    assert reduction in reductions, f'The reduction of identity_loss must be "sum", "mean" or "none", not {reduction!r}'
    with _hidden():
        result = reductions[reduction]()
    return _noted("identity_loss", result, x)


def _hidden():
    """Losses inside an identity_loss are not losses of their own."""
    state = _impl.current()
    return state.hidden_losses() if state is not None else torch.enable_grad() if torch.is_grad_enabled() else torch.no_grad()


def _noted(kind, result, *operands, **attributes):
    """Tells the compilation about the result."""
    state = _impl.current()
    if state is not None:
        state.note(kind, result, operands, attributes)
    return result


def nop(tensor):
    """An identity that stays in the graph."""
    return _noted("nop", tensor * 1 if tensor.dtype is not torch.bool else tensor.clone(), tensor)


def recomputationCheckpoint(*tensors):
    """Keeps these activations for the backward pass instead of computing them again."""
    if len(tensors) == 1:
        return _checkpoint(tensors[0])
    return tuple(map(_checkpoint, tensors))


def _checkpoint(structure):
    if isinstance(structure, torch.Tensor):
        return _noted("recomputation_checkpoint", structure.clone(), structure)
    return map_structure(lambda t: _noted("recomputation_checkpoint", t.clone(), t), structure)


def serializedMatMul(lhs, rhs, mode, factor=0, keep_precision=False):
    """A matrix product in `factor` parts along a dimension, which needs less memory at a time."""
    assert isinstance(mode, MatMulSerializationMode), "mode must be a poptorch.MatMulSerializationMode"
    _check_parts(lhs, rhs, mode, factor)
    return _noted("set_matmul_serialization", torch.matmul(lhs, rhs), mode=mode.value, factor=factor,
                  keep_precision=keep_precision)


def _check_parts(lhs, rhs, mode, factor):
    sizes = {
        MatMulSerializationMode.InputChannels: lhs.shape[-2:][0],
        MatMulSerializationMode.ReducingDim: rhs.shape[-2:][0],
        MatMulSerializationMode.OutputChannels: rhs.shape[-1],
    }
    size = sizes.get(mode)
    if size is not None and factor and size % factor:
        raise createPoptorchError(f"serializedMatMul cannot split a dimension of {size} into {factor} equal parts")


def set_available_memory(tensor, available_memory_proportion):
    """The share of memory that the operation which made the tensor may use for its temporary data."""
    return _noted("set_available_memory", tensor.clone(), tensor, proportion=available_memory_proportion)


def set_overlap_for_input(input_tensors, mode):
    """Lets the transfer of the inputs overlap with a loop."""
    return _overlap("set_overlap_for_input", input_tensors, mode)


def set_overlap_for_output(output_tensors, mode):
    """Lets the transfer of the outputs overlap with a loop."""
    return _overlap("set_overlap_for_output", output_tensors, mode)


def _overlap(kind, structure, mode):
    assert isinstance(mode, OverlapMode), f"{kind} takes a poptorch.OverlapMode, not {mode!r}"

    def mark(tensor):
        return _noted(kind, tensor.clone(), tensor, mode=mode) if isinstance(tensor, torch.Tensor) else tensor

    return map_structure(mark, structure)


def internal_cast(tensor, dtype):
    """A conversion that the compiler does not move."""
    return tensor.to(dtype)


def dynamic_slice(tensor, dim, start, size, step):
    """`tensor[start : start + size : step]` along `dim` with a start that is known at run time; wraps around."""
    _check_start(start)
    _check_size(size)
    assert step > 0, f"The step of dynamic_slice must be above 0, not {step}"
    return tensor.index_select(dim, _positions(tensor, dim, start, torch.arange(0, size, step)))


def dynamic_update(input, src, dim, start, size):  # noqa: A002 (the public name)
    """A copy of `input` with `size` elements from `start` along `dim` replaced by those of `src`."""
    _check_start(start)
    if input.dtype != src.dtype:
        shown = [_device_type(tensor.dtype) for tensor in (input, src)]
        raise createPoptorchError(f"input and src tensor must have same dtype. ({shown[0]} vs {shown[1]})")
    if input.dim() != src.dim():
        raise createPoptorchError(
            f"input and src tensors must have same dimensionality. ({input.dim()}) vs ({src.dim()})"
        )
    _check_size(size)
    return input.index_copy(dim, _positions(input, dim, start, torch.arange(size)), src)


def _device_type(dtype):
    return {torch.int64: torch.int32, torch.float64: torch.float32}.get(dtype, dtype)


def _check_size(size):
    if size == 0:
        raise createPoptorchError("The start and end of a slice must be different.")
    if size < 0:
        raise createPoptorchError("Taking a slice of a tensor with the end less than the start is not supported.")


def _check_start(start):
    if isinstance(start, torch.Tensor) and start.is_floating_point():
        raise createPoptorchError(f"The start of a dynamic slice must be an integer tensor, not {start.dtype}")


def _positions(tensor, dim, start, steps):
    start = start.reshape(()).to(torch.int64) if isinstance(start, torch.Tensor) else start
    return (start + steps) % tensor.shape[dim]


class NameScope:
    """Operations inside are named after the scope."""

    def __init__(self, name):
        assert isinstance(name, str), "The name of a NameScope must be a string"
        self._name = name

    def __enter__(self):
        _push_name_scope(self._name)
        return self

    def __exit__(self, *_):
        _pop_name_scope()


def _push_name_scope(name):
    state = _impl.current()
    if state is not None:
        state.push_name(name)


def _pop_name_scope():
    state = _impl.current()
    if state is not None:
        state.pop_name()


def _begin_block(stage, phase, ipu):  # noqa: ARG001 (the schema of the operator)
    from ._blocks import Block

    Block.start(None, ipu)


_SCHEMAS = {
    "identity_loss(Tensor x, int reduction) -> Tensor": identity_loss,
    "nop(Tensor self) -> Tensor": nop,
    "recomputation_checkpoint(Tensor self) -> Tensor": _checkpoint,
    "set_available_memory(Tensor self, float proportion) -> Tensor": set_available_memory,
    "internal_cast(Tensor self, ScalarType dtype) -> Tensor": internal_cast,
    "dynamic_slice(Tensor self, int dim, Tensor start, int size, int step) -> Tensor": dynamic_slice,
    "dynamic_update(Tensor self, Tensor src, int dim, Tensor start, int size) -> Tensor": dynamic_update,
    "push_name_scope(str name) -> ()": _push_name_scope,
    "pop_name_scope() -> ()": _pop_name_scope,
    "begin_ipu_block(int stage, int phase, int ipu) -> ()": _begin_block,
    "end_ipu_block() -> ()": lambda: None,
}

_library = torch.library.Library("poptorch", "DEF")  # lives as long as the package: dropping it removes the operators
for _schema, _function in _SCHEMAS.items():
    _library.define(_schema)
    _library.impl(_schema.split("(")[0], _function, "CompositeImplicitAutograd")
