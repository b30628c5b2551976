"""Files that hold a compiled model: a zip of our own parts.

`metadata.json` says what is in it. `executable` are the compiled programs, `arguments` the shapes and constants they are
for, `options` the options; `model` (the user's module and optimizer) is there only when it was exported. All but the
first are pickles: load files of people you trust. `random` and `optimizer` have the state of random numbers and of the
optimizer. The digests in the metadata tell whether a model and options are those that were compiled.
"""

import io
import json
import os
import pickle
import zipfile
import zlib

import torch

from ._arguments import map_structure
from ._errors import createPoptorchError
from ._executable import VERSION


def path_of(filename):
    """A folder stands for a file in it."""
    return os.path.join(filename, "model.poptorch") if os.path.isdir(filename) else filename


def write(filename, executable, digests, training, arguments, options, **parts):
    """Writes the file. `digests`: of the model and of the options. Further parts are saved by their names."""
    content = {
        "metadata.json": json.dumps({
            "version": VERSION, "training": training, "has_model": "model" in parts, **digests,
        }),
        "executable": _saved(executable),
        "arguments": pickle.dumps(_shapes(arguments)),
        "options": pickle.dumps(options),
    }
    content.update((name, _saved(value)) for name, value in parts.items() if value is not None)
    path = path_of(filename)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, one in content.items():
                archive.writestr(name, one)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


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
        self._path = path = path_of(filename)
        try:
            with zipfile.ZipFile(path) as archive:
                self._parts = {name: archive.read(name) for name in archive.namelist()}
            self.metadata = json.loads(self._parts["metadata.json"])
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
            raise createPoptorchError(
                f"{path} is cut short or damaged, or was not written by compileAndExport() or save()"
            ) from error
        if self.metadata["version"] != VERSION:
            raise createPoptorchError(
                f"{path} was written by version {self.metadata['version']}; this is {VERSION}: export the model again"
            )
        self.training = self.metadata["training"]

    def executable(self):
        """The compiled programs."""
        return torch.load(io.BytesIO(self._parts["executable"]), weights_only=False)

    def check_model(self, digest, names):
        """Raises a poptorch.Error unless the file was written for a model with this digest (None: it has none) and
        tensors of these names, types and shapes."""
        known = self.metadata["model_digest"]
        if self.metadata["tensors"] != names or (None not in (digest, known) and digest != known):
            raise createPoptorchError(
                f"{self._path} was exported for another model than this one, or its code has changed since: export it "
                "again"
            )

    def has_options(self, digest):
        """Were the programs compiled with such options?"""
        return self.metadata["options_digest"] == digest

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
