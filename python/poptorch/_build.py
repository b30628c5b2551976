"""From the user's model to the programs of a device: capture, outputs in the device's types, compile."""

import contextlib
from dataclasses import dataclass, field

import torch

import pando
from pando.torch import Output, capture

from . import _impl
from ._arguments import flatten
from ._compilation import Compilation, FunctionWatch
from ._entry import Entry
from ._errors import createPoptorchError
from ._groups import as_seen_by_replicas
from ._host_model import plain

_DEVICE_TYPES = {torch.int64: (torch.int32, "i32"), torch.float64: (torch.float32, "f32")}


@dataclass
class Built:
    """A captured model: what the programs of one or more kinds are made from."""

    captured: object
    compilation: Compilation
    structure: object  # of the result
    outputs: list  # leaves: Output or a constant
    losses: list  # values of the losses
    names: list  # of the inputs
    extra: dict = field(default_factory=dict)


def build(model, options, training, arguments, plan, groupings):
    """Captures the model on micro-batches of the arguments. `groupings`: id of a tensor -> how replicas share it."""
    compilation = Compilation(options, training)
    entry = Entry(model, arguments, compilation)
    samples = []
    for name, tensor in arguments.tensors():
        size = plan.micro_batch(name, tensor)
        shape = tensor.shape if size is None else (size, *tensor.shape[1:])
        samples.append(torch.empty(shape, dtype=tensor.dtype))
    owner = entry._owner()
    names = [name for name, _ in arguments.tensors()]
    with contextlib.ExitStack() as stack:
        for one in (_impl.compiling(compilation), plain(owner)):
            stack.enter_context(one)
        replaced = stack.enter_context(as_seen_by_replicas(owner, groupings))
        before = _tensors(owner)
        for one in (_unchecked_distributions(), FunctionWatch(compilation)):
            stack.enter_context(one)
        try:
            captured = capture(entry, samples, training=training, prepare=compilation.prepare, names=_text(names))
        except pando.Error as error:
            raise createPoptorchError(str(error)) from error
        finally:
            problem = _changed(owner, before)
            _restore(owner, before)
    for state in captured.state:
        state.tensor = replaced.get(id(state.tensor), state.tensor)
    if problem is not None:
        raise createPoptorchError(problem)
    compilation.overlaps.check([leaf for leaf in flatten(entry.result) if isinstance(leaf, torch.Tensor)])
    count = sum(1 for _ in flatten(entry.result))
    losses = [output.value for output in captured.outputs[count:]]
    return Built(captured, compilation, entry.result, captured.outputs[:count], losses, names)


@contextlib.contextmanager
def _unchecked_distributions():
    """Checks of a distribution's numbers would ask for elements that are not known yet."""
    distribution = torch.distributions.Distribution
    before = distribution._validate_args
    distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        distribution.set_default_validate_args(before)


def _text(names):
    """Names of inputs as the graph's text has them."""
    return [name.replace("[", ".").replace("]", "") for name in names]


def device_type(dtype):
    """What a tensor of this type is on the device."""
    return _DEVICE_TYPES.get(dtype, (dtype, None))[0]


def output_values(built):
    """The values and types of the outputs that are tensors: 64-bit numbers come back as 32-bit ones."""
    values, dtypes = [], []
    for output in built.outputs:
        if isinstance(output, Output):
            dtype, name = _DEVICE_TYPES.get(output.dtype, (output.dtype, None))
            values.append(output.value if name is None else output.value.to(name))
            dtypes.append(dtype)
    return values, dtypes


def _tensors(owner):
    """(module, kind, name) -> tensor, of everything registered."""
    found = {}
    if owner is None:
        return found
    for path, module in owner.named_modules():
        for kind in ("_parameters", "_buffers"):
            for name, tensor in getattr(module, kind).items():
                found[(path, module, kind, name)] = tensor
    return found


def _changed(owner, before):
    """What the forward pass did to registered tensors that it must not, or None."""
    for (path, module, kind, name), tensor in before.items():
        what = "Parameter" if kind == "_parameters" else "Buffer"
        full = f"{path}.{name}" if path else name
        registered = getattr(module, kind)
        if name not in registered:
            return f"{what} {full} is removed from the model when calling the forward method."
        if registered[name] is not tensor and not isinstance(module, torch.nn.modules.batchnorm._NormBase):
            return (
                f"{what} {full} is reassigned within the model when calling the forward method. This is not supported. "
                f"Consider using self.{full}.copy_(src) to copy data from a source tensor, where src is the name of the "
                "source tensor."
            )
    return None


def _restore(owner, before):
    for (_, module, kind, name), tensor in before.items():
        getattr(module, kind)[name] = tensor
