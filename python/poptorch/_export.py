"""Files that hold a compiled model: a zip of our own parts.

`metadata.json` says what is in it. `arguments` are the shapes and constants it was compiled for, `options` the
options; `model` (the user's module and optimizer) is there only when it was exported. The last three are pickles:
load files of people you trust. `random` and `optimizer` have the state of random
numbers and of the optimizer.
"""

import io
import json
import os
import pickle
import zipfile

import torch

from ._arguments import map_structure
from ._errors import createPoptorchError

VERSION = "3.4.0+pando1"


def path_of(filename):
    """A folder stands for a file in it."""
    return os.path.join(filename, "model.poptorch") if os.path.isdir(filename) else filename


def write(filename, training, arguments, options, model=None, optimizer=None, random=None, state=None):
    """Writes the file."""
    parts = {
        "metadata.json": json.dumps({"version": VERSION, "training": training, "has_model": model is not None}),
        "arguments": pickle.dumps(_shapes(arguments)),
        "options": pickle.dumps(options),
    }
    if model is not None:
        parts["model"] = _saved({"model": model, "optimizer": optimizer})
    if random is not None:
        parts["random"] = _saved(random)
    if state is not None:
        parts["optimizer"] = _saved(state)
    path = path_of(filename)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def _saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _shapes(arguments):
    """The arguments with tensors of one element each, shown at full size."""
    def shape(leaf):
        return ("tensor", leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else leaf

    return [shape(leaf) for _, leaf in arguments.leaves()], map_structure(lambda _: None, arguments.call())


class File:
    """A file that `write` made."""

    def __init__(self, filename):
        path = path_of(filename)
        try:
            with zipfile.ZipFile(path) as archive:
                self._parts = {name: archive.read(name) for name in archive.namelist()}
            self.metadata = json.loads(self._parts["metadata.json"])
        except (zipfile.BadZipFile, KeyError, ValueError) as error:
            raise createPoptorchError(f"{path} was not written by compileAndExport() or save()") from error
        if self.metadata["version"] != VERSION:
            raise createPoptorchError(
                f"{path} was written by version {self.metadata['version']}; this is {VERSION}: export the model again"
            )
        self.training = self.metadata["training"]

    def call(self):
        """(args, kwargs) of the call it was compiled for; tensors are zeros."""
        from ._arguments import rebuild

        leaves, structure = pickle.loads(self._parts["arguments"])
        real = (torch.zeros(leaf[2], dtype=leaf[1]) if isinstance(leaf, tuple) and leaf[:1] == ("tensor",) else leaf
                for leaf in leaves)
        return rebuild(structure, real)

    def options(self):
        """The options, not frozen."""
        options = pickle.loads(self._parts["options"])
        options._unfreeze()
        return options

    def model(self):
        """(model, optimizer)."""
        if "model" not in self._parts:
            raise createPoptorchError(
                "The file has no model: export it with export_model=True, or use loadExecutable() of a wrapped model"
            )
        found = torch.load(io.BytesIO(self._parts["model"]), weights_only=False)
        return found["model"], found["optimizer"]

    def random(self):
        """The state of random numbers, or None."""
        return self._tensors("random")

    def optimizer_state(self):
        """The optimizer's state on the device, or None."""
        return self._tensors("optimizer")

    def _tensors(self, name):
        if name not in self._parts:
            return None
        return torch.load(io.BytesIO(self._parts[name]), weights_only=True)
