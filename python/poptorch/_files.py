"""Files of an executor: exported models, and the cache of executables."""

import torch

from . import _export, _logging
from ._cache import Cache
from ._compile import compile_model
from ._errors import createPoptorchError
from ._fingerprint import Unknown, fingerprint
from .enums import ConnectionType

RANDOM = ("seed", "~rounding_seed")
# Options that change how a program runs, not the program. (Device iterations decide the size of a micro-batch.)
_AT_RUN_TIME = {
    "connection_type", "log_dir", "ipu_id", "ipu_model", "offline_ipu_version", "max_repeat_logs", "model_name",
    "compilation_progress_bar", "log_cycle_count", "executable_cache_path", "random_seed", "output_mode",
    "output_return_period", "source_location_excludes", "auto_round_num_ipus",
    "instrumentWithHardwareCycleCounter", "enableEngineCaching", "cachePath", "engineOptions",
}


class Files:
    """A part of `PoplarExecutor`."""

    def _executable_for(self, arguments, plan):
        """From the cache if there is one, otherwise compiled."""
        folder = self._options.executable_cache_path
        key = self._cache_key(arguments) if folder else None
        if key is None:
            return self._compiled(arguments, plan)
        cache = Cache(folder)
        with cache.locked():
            executable = cache.get(key)
            if executable is not None:
                _logging.core(20, f"Loaded the executable from the cache {folder}")
                return executable
            executable = self._compiled(arguments, plan)
            if not executable.calls_host:
                cache.put(key, executable)
            return executable

    def _compiled(self, arguments, plan):
        by_name = self._tensors_by_name()
        groupings = {id(by_name[name]): grouping for name, grouping in self._groupings.items()}
        return compile_model(
            self._user_model, self._options, self._training, arguments, plan, self._trainer, groupings
        )

    def _cache_key(self, arguments):
        """The digest of the call: None, with a line in the log, if something has none."""
        try:
            around = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_grad_enabled()
            return fingerprint(
                self._user_model, self._training, around, _shapes(arguments), *self._options_that_decide()
            )
        except Unknown as unknown:
            _logging.logger.debug("The model is not cached: there is no digest of %s", unknown)
            return None

    def _options_that_decide(self):
        options = self._options
        chosen = {key: value for key, value in sorted(options.toDict().items()) if key not in _AT_RUN_TIME}
        rule = self._trainer.what_decides() if self._training else None
        return chosen, repr(options._execution_strategy), sorted(map(repr, self._groupings.items())), rule

    def _digests(self):
        """Of the model and the options, and what tensors the model has."""
        def digest(*things):
            try:
                return fingerprint(*things)
            except Unknown:
                return None

        names = [[name, str(one.dtype), list(one.shape)] for name, one in sorted(self._tensors_by_name().items())]
        return {"model_digest": digest(self._user_model), "tensors": names,
                "options_digest": digest(None, *self._options_that_decide())}

    def compileAndExport(self, filename, *args, export_model=True, **kwargs):
        """Compiles and writes the result to a file (or into a folder)."""
        if self._device is None:
            self._compile(self._bind(args, kwargs))
        self.save(filename, export_model, save_rng_state=False)

    def save(self, filename, export_model=True, save_rng_state=True):
        """Writes the compiled model to a file, with the module, its weights and its optimizer if `export_model`."""
        self._require_compiled()
        if self._executable.calls_host:
            raise createPoptorchError("A model with poptorch.CPU calls Python in the middle: it cannot be exported")
        self.copyWeightsToHostIfNeeded()
        parts = {}
        if export_model:
            parts["model"] = {"model": self._user_model,
                              "optimizer": self._trainer.optimizer if self._training else None}
            parts["optimizer"] = self._trainer.optimizer_state() if self._training and self._attached else None
        if save_rng_state and self._attached:
            self._log_random("Reading")
            parts["random"] = {name: self._device.read(name) for name in RANDOM if self._device.has(name)}
        destroy = self._user_model.__dict__.pop("destroy", None) if self._training else None
        try:
            _export.write(filename, self._executable, self._digests(), self._training, self._arguments, self._options,
                          **parts)
        finally:
            if destroy is not None:
                self._user_model.__dict__["destroy"] = destroy

    def loadExecutable(self, filename):
        """Takes over the programs of a file, with this executor's own model, which must be the one that was exported."""
        file = _export.File(filename)
        if file.training != self._training:
            kinds = ["inference", "training"]
            raise createPoptorchError(f"{filename} holds a model for {kinds[file.training]}, not for {kinds[self._training]}")
        self._load(file)

    def _load(self, file):
        """The programs of the file, if they were compiled for such a model with such options; with other options the
        model is compiled for the same call."""
        digests = self._digests()
        file.check_model(digests["model_digest"], digests["tensors"])
        args, kwargs = file.call()
        arguments = self._bind(args, kwargs)
        ready = file.has_options(digests["options_digest"])
        self._compile(arguments, file.executable() if ready else None)
        if self._training:
            self._trainer.preload(file.optimizer_state())
        for name, tensor in (file.random() or {}).items():
            self._device.write(name, tensor)
        self._has_random_state = file.random() is not None
        if self._options.connection_type is ConnectionType.Always:
            self.attachToDevice()
        else:
            self._log_random("Setting")


def _shapes(arguments):
    """Tensors by type and size, everything else as it is."""
    return [(name, ("tensor", str(leaf.dtype), tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else leaf)
            for name, leaf in arguments.leaves()]
