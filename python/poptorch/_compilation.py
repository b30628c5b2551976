"""What is known while a model is captured: blocks, losses, and what operations say about their operands."""

import contextlib

import torch
from torch.overrides import TorchFunctionMode

from pando import _pando

from ._arguments import flatten
from ._blocks import Blocks
from ._errors import createPoptorchError
from ._overlaps import Overlaps
from ._prediction import wants_locations

_LOSS_FUNCTIONS = {
    getattr(torch.nn.functional, name)
    for name in (
        "l1_loss mse_loss cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div "
        "poisson_nll_loss hinge_embedding_loss smooth_l1_loss soft_margin_loss cosine_embedding_loss "
        "margin_ranking_loss triplet_margin_loss triplet_margin_with_distance_loss ctc_loss huber_loss "
        "gaussian_nll_loss multilabel_margin_loss multilabel_soft_margin_loss multi_margin_loss"
    ).split()
}
_CONVOLUTIONS = {
    getattr(torch, name)
    for name in "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution".split()
}
_LAYERS = _CONVOLUTIONS | {torch.nn.functional.linear}


class Compilation:
    """One capture's findings; `_impl.current()` while it runs."""

    def __init__(self, options, training):
        self.options = options
        self.training = training
        self.blocks = Blocks(options._execution_strategy)
        self.capture = None
        self.inputs = []
        self.losses = []
        self.wraps_loss = False  # whether the last loss is an identity_loss
        self.prints = []
        self.watched = [] if options.Precision.exists("enableFloatingPointChecks") and (
            options.Precision.enableFloatingPointChecks) else None  # floats that have to be finite
        self.checkpoints = []
        self.multi_convs = []
        self.overlaps = Overlaps(options)
        self._hidden = 0
        self._open_multi_conv = None
        self._paths = []

    def prepare(self, capture):
        """Called when the capture is set up."""
        self.capture = capture
        if wants_locations(self.options):
            capture.locations = {}

    # Losses.

    @contextlib.contextmanager
    def hidden_losses(self):
        """Loss functions called inside are parts of another loss."""
        self._hidden += 1
        try:
            yield
        finally:
            self._hidden -= 1

    def mark_loss(self, result, wraps=False):
        """The result is a loss; `wraps`: it may be made of other ones."""
        if not self._hidden and isinstance(result, torch.Tensor):
            self.losses.append(result)
            self.wraps_loss = wraps

    # Notes of operations.

    def note(self, kind, result, operands, attributes):
        """An operation of `ops.py` has made `result`."""
        handler = getattr(self, f"_note_{kind}", None)
        if handler is not None:
            handler(result, operands, **attributes)

    def _note_identity_loss(self, result, operands):
        self.mark_loss(result, wraps=True)

    def _note_ipu_print_tensor(self, result, operands, format, print_gradient):  # noqa: A002
        tracked = self.capture.tracked(result)
        if self.training and print_gradient and tracked.read() is not None:
            # A value of its own: its gradient is what flows back through the operation.
            tracked.write(self.capture.emitter.apart("printed", [tracked.read()])[0], tracked.needs_grad)
        self.prints.append((result, format, print_gradient))

    def _note_recomputation_checkpoint(self, result, operands):
        self.checkpoints.append(result)

    def _note_set_overlap_for_input(self, result, operands, mode):
        self.overlaps.mark_input(self.inputs, operands[0], mode)

    def _note_set_overlap_for_output(self, result, operands, mode):
        self.overlaps.mark_output(operands[0], result, mode)

    def watch(self, result):
        """Remembers floats for the check of floating-point exceptions."""
        if self.watched is not None:
            self.watched += [leaf for leaf in flatten(result)
                             if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
        return result

    def finite(self):
        """`bool[]`: no input and no result of an operation is infinite or not a number. None if nobody asks."""
        if self.watched is None:
            return None
        emitter = self.capture.emitter
        floats = [t for t in self.inputs if t.is_floating_point()] + self.watched
        values = {tracked.read() for tracked in (getattr(t, "_pando", None) for t in floats) if tracked is not None}
        values = [value.id for value in values if value is not None and value.frame is emitter.frame]
        return emitter.value(_pando.all_finite(emitter.native, sorted(set(values))))

    # Names.

    def push_name(self, name):
        """Values that follow are named below `name`."""
        self._paths.append(self.capture.path)
        self.capture.path = [*self.capture.path, name]

    def pop_name(self):
        """Ends `push_name`."""
        self.capture.path = self._paths.pop()

    # Multi-convolutions.

    def begin_multi_conv(self, options):
        """Convolutions that follow belong together."""
        if self._open_multi_conv is not None:
            raise createPoptorchError("Nested poptorch.MultiConv is not supported")
        self._open_multi_conv = {"options": dict(options), "convolutions": 0}

    def end_multi_conv(self):
        """Ends `begin_multi_conv`."""
        group, self._open_multi_conv = self._open_multi_conv, None
        if not group["convolutions"]:
            raise createPoptorchError("Unexpected end_multi_conv: there is no convolution in the poptorch.MultiConv")
        self.multi_convs.append(group)

    def count_convolution(self):
        """A convolution is called."""
        if self._open_multi_conv is not None:
            self._open_multi_conv["convolutions"] += 1

    # Control flow.

    def for_loop(self, count, body, inputs):
        """`repeat` in the graph: tensors as values, the body captured once."""
        from ._regions import repeat

        return repeat(self.capture, count, body, inputs)

    def cond(self, condition, then_body, then_inputs, else_body, else_inputs):
        """`if` in the graph: both bodies captured."""
        from ._regions import branch

        return branch(self.capture, condition, (then_body, then_inputs), (else_body, else_inputs))


def _on_this_device(args, kwargs):
    """Tensors of the model are on the device already: "ipu" is where they are."""
    if _names_ipu(kwargs.get("device")):
        kwargs = {**kwargs, "device": "cpu"}
    if any(_names_ipu(arg) for arg in args[1:]):
        args = tuple("cpu" if _names_ipu(arg) else arg for arg in args)
    return args, kwargs


def _names_ipu(value):
    if isinstance(value, torch.device):
        return value.type == "ipu"
    return isinstance(value, str) and (value == "ipu" or value.startswith("ipu:"))


class FunctionWatch(TorchFunctionMode):
    """Sees every function of PyTorch that the model calls: losses, convolutions, and where operations run."""

    def __init__(self, compilation):
        super().__init__()
        self._compilation = compilation

    def __torch_function__(self, func, types, args=(), kwargs=None):
        state = self._compilation
        kwargs = kwargs or {}
        if state.capture is not None and any(isinstance(arg, torch.Tensor) for arg in args):
            if getattr(func, "__name__", "") != "__get__":
                state.capture.region = state.blocks.place()
                for arg in args:
                    state.overlaps.uses[id(arg)] = state.overlaps.uses.get(id(arg), 0) + 1
        args, kwargs = _on_this_device(args, kwargs)
        if func in _CONVOLUTIONS:
            state.count_convolution()
        if func in _REFUSED:
            _REFUSED[func](*args, **kwargs)
        if func is torch.nn.functional.group_norm and state.options._Popart.options.get(
            "groupNormStridedChannelGrouping"
        ):
            args, kwargs, undo = _strided_groups(*args, **kwargs)
            return undo(func(*args, **kwargs))
        if func in _LAYERS:
            args, kwargs = _in_type_of_activations(args, kwargs)
        if func not in _LOSS_FUNCTIONS:
            return state.watch(func(*args, **kwargs))
        with state.hidden_losses():
            result = func(*args, **kwargs)
        state.mark_loss(result)
        return result


def _strided_groups(x, num_groups, weight=None, bias=None, eps=1e-5):
    """Group norm whose groups take every `num_groups`-th channel: the channels in another order, and back."""
    channels = torch.arange(x.shape[1])
    order = channels.reshape(-1, num_groups).t().reshape(-1)
    back = channels.reshape(num_groups, -1).t().reshape(-1)

    def ordered(parameter):
        return None if parameter is None else parameter.index_select(0, order)

    args = (x.index_select(1, order), num_groups, ordered(weight), ordered(bias), eps)
    return args, {}, lambda result: result.index_select(1, back)


def _check_one_hot(tensor, num_classes=-1):
    if num_classes == -1:
        raise createPoptorchError("OneHot num classes must be specified and must be constant.")


def _check_bincount(tensor, weights=None, minlength=0):
    if not minlength:
        raise createPoptorchError(
            "Bincount `minlength` must be specified and must be a constant. On the IPU MK2 platform the minimum length "
            "is also the maximum length"
        )


# Functions whose result's size would depend on elements.
_REFUSED = {
    torch.nn.functional.one_hot: _check_one_hot,
    torch.bincount: _check_bincount,
    torch.Tensor.bincount: _check_bincount,
}


def _in_type_of_activations(args, kwargs):
    """A layer computes in the type of what comes in: weights of another float type are converted."""
    if not args or not isinstance(args[0], torch.Tensor):
        return args, kwargs
    dtype = args[0].dtype

    def converted(value):
        other = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != dtype
        return value.to(dtype) if other and dtype.is_floating_point else value

    return tuple(map(converted, args)), {name: converted(value) for name, value in kwargs.items()}
