"""The user's model as the capture sees it: a module that takes the tensors of a call alone."""

import torch

from ._arguments import flatten


class Entry(torch.nn.Module):
    """Takes tensors, calls the model with them in their places, returns the result's leaves."""

    def __init__(self, model, arguments, compilation):
        super().__init__()
        # Not registered as a submodule: names of state are the model's own.
        object.__setattr__(self, "_user_model", model)
        object.__setattr__(self, "_arguments", arguments)
        object.__setattr__(self, "_compilation", compilation)
        object.__setattr__(self, "result", None)

    def _owner(self):
        model = self._user_model
        model = model if isinstance(model, torch.nn.Module) else getattr(model, "__self__", None)
        return model if isinstance(model, torch.nn.Module) else None

    def named_parameters(self, *args, **kwargs):
        owner = self._owner()
        return iter(()) if owner is None else owner.named_parameters(*args, **kwargs)

    def named_buffers(self, *args, **kwargs):
        owner = self._owner()
        return iter(()) if owner is None else owner.named_buffers(*args, **kwargs)

    def named_modules(self, *args, **kwargs):
        owner = self._owner()
        return iter(()) if owner is None else owner.named_modules(*args, **kwargs)

    def __call__(self, *tensors):
        self._compilation.inputs = list(tensors)
        args, kwargs = self._arguments.with_tensors(tensors)
        result = _called(self._user_model, args, kwargs)
        object.__setattr__(self, "result", result)
        losses = self._compilation.losses
        return [*flatten(result), *losses]

    forward = __call__


def _called(model, args, kwargs):
    """The model's result. In PyTorch's complaints about arguments the stand-ins for tensors are tensors."""
    try:
        return model(*args, **kwargs)
    except TypeError as error:
        if type(error) is TypeError and "FakeTensor" in str(error):
            raise TypeError(str(error).replace("FakeTensor", "Tensor")) from error
        raise
