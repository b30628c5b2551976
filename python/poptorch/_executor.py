"""`PoplarExecutor`: a wrapped model. Compiles on the first call, runs, and keeps the host's weights in step."""

import datetime
import time
import warnings

import torch

from . import _impl, _signature
from ._arguments import flatten, rebuild
from ._batches import Plan
from ._blocks import module_repr
from ._build import build, device_type, output_values
from ._device import Device, Program, copied, copy_into
from ._errors import createPoptorchError
from ._host_model import plain_view, unwatch, watch
from ._logging import core, logger
from ._option_keys import validate
from ._perf import summary
from ._run import Runner
from .enums import ConnectionType, OutputMode

_NOT_COMPILED = "Model has not been compiled or has been destroyed."
_NO_BACKWARD = (
    "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
    "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you should "
    "use a trainingModel instead."
)


class PoplarExecutor:
    """Do not make one: `trainingModel` and `inferenceModel` do. Attributes that it has not are the user model's."""

    def __init__(self, model, options, training, optimizer=None):
        self._user_model = model
        self._training = training
        self._options = options.clone()
        if self._options.defaultOutputMode():
            self._options.outputMode(OutputMode.Final if training else OutputMode.All)
        self._options._freeze()
        self._signature = None
        self._reset()
        self._optimizer = None
        self._trainer = None
        if training:
            from ._training import Trainer

            self._trainer = Trainer(self, optimizer)

    def _reset(self):
        self._device = None
        self._arguments = None
        self._built = None
        self._runner = None
        self._attached = False
        self._host_is_stale = False
        self._compilation_time = None
        self._has_run = False
        self._names = {}
        self._warned = set()
        self._version = 0

    # Calls.

    def __call__(self, *args, **kwargs):
        """Runs the model: compiles first if it is not compiled, attaches if it is not attached."""
        arguments = self._bind(args, kwargs)
        if self._device is None:
            assert self._options.connection_type is not ConnectionType.Never, (
                "Trying to run a model on an offline device (ConnectionType.Never): use compile() or compileAndExport()"
            )
            self._compile(arguments)
        else:
            _signature.check(self._arguments, arguments)
        assert self._options.connection_type is not ConnectionType.Never, (
            "Trying to run a model on an offline device (ConnectionType.Never)"
        )
        if not self._attached:
            self.attachToDevice()
        self._take_newer_weights()
        tensors = [self._input(name, tensor) for name, tensor in arguments.tensors()]
        outputs = self._runner.run(tensors)
        self._has_run = True
        if self._built.extra["writes"]:
            self._host_is_stale = True
            self._version += 1
        return self._results(outputs)

    def _bind(self, args, kwargs):
        if self._signature is None:
            model = self._user_model
            self._signature = _signature.Signature(model.forward if isinstance(model, torch.nn.Module) else model)
        return self._signature.bind(args, kwargs)

    def _input(self, name, tensor):
        if tensor.requires_grad:
            self._warn_once("grad", f"Input tensor {name} has requires_grad=True: it is detached, and gets no gradient")
            tensor = tensor.detach()
        if not tensor.is_contiguous():
            self._warn_once("contiguous", f"Input tensor {name} is not contiguous: a contiguous copy is used")
        return tensor

    def _warn_once(self, key, text):
        if key not in self._warned:
            self._warned.add(key)
            logger.warning(text)

    def _results(self, outputs):
        outputs = iter(outputs)
        leaves = [self._output(next(outputs)) if hasattr(leaf, "value") else leaf for leaf in self._built.outputs]
        return rebuild(self._built.structure, leaves)

    @staticmethod
    def _output(tensor):
        tensor.backward = _no_backward
        return tensor

    # Compilation.

    def compile(self, *args, **kwargs):
        """Compiles without running."""
        if self._device is not None:
            logger.warning("Call to compile() ignored: the model is already compiled")
            return
        self._compile(self._bind(args, kwargs))
        if self._options.connection_type is ConnectionType.Always:
            self.attachToDevice()

    def _compile(self, arguments):
        start = time.perf_counter()
        options = self._options
        validate(options.toDict())
        plan = Plan.of(options, self._training)
        with _impl.compile_hooks():
            built = build(self._user_model, options, self._training, arguments, plan)
            self._built, self._arguments = built, arguments
            device = Device()
            self._check_buffers(built, plan)
            if self._training:
                self._trainer.compile(built, device, plan)
            else:
                self._compile_inference(built, device)
        self._device = device
        self._names = {state.name: state.tensor for state in built.captured.state if state.tensor is not None}
        self._load_weights()
        written = [i for i, one in enumerate(built.captured.inputs) if one.written is not None]
        self._runner = Runner(
            device, plan, options.output_mode, options.output_return_period, len(built.extra["outputs"]),
            self._training, written, bool(options._Popart.options.get("syntheticDataMode")),
        )
        self._runner.rename = self._renames(built, plan)
        watch(self._user_model, self)
        self._compilation_time = datetime.timedelta(seconds=time.perf_counter() - start)

    def _check_buffers(self, built, plan):
        known = {state.name for state in built.captured.state if state.kind == "buffer"}
        for name in self._options._Popart.options.get("updatableNamedBuffers", ()):
            if name not in known:
                raise createPoptorchError(f"updatableNamedBuffers: the model has no buffer {name}")
        buffers = [state for state in built.captured.written_state if state.kind == "buffer"]
        if plan.replicas > 1 and buffers and self._options.broadcast_buffers:
            raise createPoptorchError(
                "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming "
                "out of sync between replicas, you can disable buffer broadcasting using "
                "poptorch.Options.broadcastBuffers(False)."
            )

    def _renames(self, built, plan):
        """Names of state that each replica has for itself: buffers that it writes."""
        own = [state.name for state in built.captured.written_state if state.kind == "buffer"]
        if plan.replicas == 1 or not own:
            return lambda replica: None
        for name in own:
            for replica in range(1, plan.replicas):
                self._device.write(f"{name}#{replica}", self._device.read(name))
        return lambda replica: {name: f"{name}#{replica}" for name in own} if replica else None

    def _compile_inference(self, built, device):
        captured = built.captured
        values, dtypes = output_values(built)
        writes = captured.written_state
        written = [one for one in captured.inputs if one.written is not None]
        results = [*(state.written for state in writes), *values, *(one.written for one in written)]
        params = [one.value for one in (*captured.state, *captured.inputs)]
        module = captured.finish(results, params)
        device.programs["main"] = Program(
            module, [state.name for state in captured.state], [state.name for state in writes],
            [*dtypes, *(one.dtype for one in written)],
        )
        built.extra.update(outputs=dtypes, writes=[state.name for state in writes if state.tensor is not None])

    # Weights.

    def _load_weights(self):
        for name, tensor in self._names.items():
            self._device.write(name, plain_view(tensor) if hasattr(tensor, "replicaGrouping") else tensor)
        if "seed" not in self._device.state:
            self._set_seed(torch.initial_seed() if self._options.random_seed is None else self._options.random_seed)

    def _set_seed(self, seed):
        self._device.state["seed"] = torch.tensor([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]).to(torch.uint32)

    def _take_newer_weights(self):
        """Weights that are being trained elsewhere are copied over before a run."""
        if self._training:
            return
        for tensor in self._names.values():
            owners = tensor.__dict__.get("_poptorch_owners")
            for other in owners.executors() if owners is not None else ():
                if other is not self and other._training and other._is_newer(self):
                    self.copyWeightsToDevice()
                    return

    def _is_newer(self, other):
        """Has this executor's training gone on since `other` last looked?"""
        seen = other.__dict__.setdefault("_seen", {})
        version = (id(self), self._version)
        newer = seen.get(id(self)) != version and self._version > 0
        seen[id(self)] = version
        return newer

    def copyWeightsToHost(self):
        """Overwrites the user model's parameters and buffers by the device's."""
        self._require_compiled()
        core(20, "Explicit copyWeightsToHost()")
        self._copy_to_host()

    def copyWeightsToHostIfNeeded(self):
        """The same, if the device's are newer. Says whether they were."""
        if not self._host_is_stale or self._device is None:
            return False
        logger.debug("Implicit copyWeightsToHost()")
        self._copy_to_host()
        return True

    def _copy_to_host(self):
        self._host_is_stale = False
        for name, tensor in self._names.items():
            if name in self._device.state:
                copy_into(plain_view(tensor), self._device.read(name))

    def copyWeightsToDevice(self):
        """Overwrites the device's parameters and buffers by the user model's."""
        self._require_compiled()
        logger.debug("Writing weights from host to IPU memory")
        for owner in _owners_of(self._names.values()):
            if owner is not self:
                owner.copyWeightsToHostIfNeeded()
        self._host_is_stale = False
        self._refresh_names()
        for name, tensor in self._names.items():
            self._device.write(name, plain_view(tensor))

    def _refresh_names(self):
        """Buffers and parameters may have been replaced by other tensors of the same name."""
        if not isinstance(self._user_model, torch.nn.Module):
            return
        watch(self._user_model, self)
        current = dict([*self._user_model.named_parameters(), *self._user_model.named_buffers()])
        self._names = {name: current.get(name, tensor) for name, tensor in self._names.items()}

    def copyNamedBuffersToDevice(self):
        """Overwrites the buffers of `updatableNamedBuffers` on the device."""
        self._require_compiled()
        names = self._options._Popart.options.get("updatableNamedBuffers")
        if not names:
            raise createPoptorchError("copyNamedBuffersToDevice needs poptorch.Options.updatableNamedBuffers")
        for name in names:
            self._device.write(name, plain_view(self._names[name]))

    def load_state_dict(self, state_dict, strict=True):
        """Loads into the user model, and onto the device if the model is on one."""
        result = self._user_model.load_state_dict(state_dict, strict)
        if self._attached:
            self.copyWeightsToDevice()
        return result

    # The device.

    def isCompiled(self):
        """Is there a compiled program?"""
        return self._device is not None

    def isAttachedToDevice(self):
        """Is the model on its device?"""
        return self._attached

    def attachToDevice(self):
        """Takes the device and loads weights onto it."""
        self._require_compiled()
        assert self._options.connection_type is not ConnectionType.Never, (
            "Trying to attach to an offline device (ConnectionType.Never)"
        )
        if self._attached:
            raise createPoptorchError("Device is already attached")
        self._attached = True
        self.copyWeightsToDevice()
        if self._trainer is not None:
            self._trainer.attached()

    def detachFromDevice(self):
        """Reads weights and state back and gives up the device."""
        self._require_compiled()
        if not self._attached:
            raise createPoptorchError("Device is not attached")
        self.copyWeightsToHostIfNeeded()
        if self._trainer is not None:
            self._trainer.detached()
        self._attached = False

    def destroy(self):
        """Forgets the compiled program; the user model is as it was, with its newest weights."""
        if self._device is None:
            return
        self.copyWeightsToHostIfNeeded()
        if self._trainer is not None:
            self._trainer.destroyed()
        unwatch(self._user_model, self)
        self._reset()

    def _require_compiled(self):
        if self._device is None:
            raise createPoptorchError(_NOT_COMPILED)

    # Measurements.

    def getPerfCounters(self):
        """When inputs and outputs of the last call were moved: seconds by [tensor][step]."""
        empty = {name: [[]] for name in ("input", "input_complete", "output", "output_complete")}
        counters = self._runner.counters if self._runner is not None else None
        return empty if counters is None else counters.lists()

    def _latency(self, part):
        counters = self._runner.counters if self._runner is not None else None
        return (0.0, 0.0, 0.0) if counters is None else summary(counters.latencies()[part])

    def getHostIpuLatency(self):
        """(minimum, maximum, average) seconds to hand over a micro-batch's inputs."""
        return self._latency(0)

    def getComputeLatency(self):
        """(minimum, maximum, average) seconds to compute a micro-batch."""
        return self._latency(1)

    def getIpuHostLatency(self):
        """(minimum, maximum, average) seconds to get a micro-batch's outputs."""
        return self._latency(2)

    def getLatency(self):
        """(minimum, maximum, average) seconds of all three."""
        return self._latency(3)

    def compilationTime(self):
        """How long compilation took."""
        if self._compilation_time is None:
            raise createPoptorchError("Please compile the model before obtaining compilation time.")
        if not self._options.compilation_progress_bar:
            raise createPoptorchError("Please set showCompilationProgressBar option to obtain compilation time.")
        return self._compilation_time

    # The rest.

    @property
    def model(self):
        """The user's model."""
        return self._user_model

    @property
    def options(self):
        """The options in use."""
        return self._options

    def __getattr__(self, name):
        if name.startswith("__") or name in ("_user_model", "_device"):
            raise AttributeError(name)
        return getattr(self._user_model, name)

    def __repr__(self):
        model = self._user_model
        return module_repr(model) if isinstance(model, torch.nn.Module) else repr(model)


def _no_backward(*_, **__):
    raise createPoptorchError(_NO_BACKWARD)


def _owners_of(tensors):
    found = []
    for tensor in tensors:
        owners = tensor.__dict__.get("_poptorch_owners")
        found += [owner for owner in (owners.executors() if owners is not None else ()) if owner not in found]
    return found
