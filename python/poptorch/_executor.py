"""`PoplarExecutor`: a wrapped model. Compiles on the first call, runs, and keeps the host's weights in step."""

import datetime
import time
import weakref

import torch

from pando.torch._types import TORCH_TYPES

from . import _export, _hardware, _impl, _ir, _placement, _prediction, _signature
from ._arguments import rebuild
from ._batches import Plan
from ._blocks import module_repr
from ._build import build, output_values
from ._device import Device, Program, copy_into
from ._errors import createPoptorchError
from ._hardware import claims_hardware
from ._host_model import plain_view, unwatch, watch
from ._logging import core, core_enabled, logger
from ._option_keys import validate
from ._perf import summary
from ._run import Runner
from ._shared_weights import SharedWeights
from ._trainer import Trainer
from .enums import ConnectionType, OutputMode

_RANDOM = ("seed", "~rounding_seed")
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
        self._trainer = None
        watch(model, self)
        if training:
            self._trainer = Trainer(self, optimizer)
            self._user_model.__dict__["destroy"] = Destroy(self)

    def _reset(self):
        self._device = None
        self._shared = None
        self._arguments = None
        self._built = None
        self._runner = None
        self._attached = False
        self._host_is_stale = False
        self._compilation_time = None
        self._cycle_count = None
        self._ipu = None
        self._has_random_state = False
        self._has_run = False
        self._names = {}
        self._warned = set()
        self._version = 0

    def _group_replicas(self, tensor, comm_group_type, shards, variable_retrieval_mode):
        raise createPoptorchError("Weights that differ between replicas (replicaGrouping) are not supported")

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
        if self._options.log_cycle_count and not claims_hardware():
            raise createPoptorchError("Cycle count logging is only supported on actual IPU hardware.")
        if not self._attached:
            self.attachToDevice()
        self._take_newer_weights()
        if self._trainer is not None:
            self._trainer.before_run()
        tensors = [self._input(name, tensor) for name, tensor in arguments.tensors()]
        if self._shared and not self._shared.remember():
            self._shared.end()
        outputs = self._runner.run(tensors)
        self._has_run = True
        if self._options.log_cycle_count:
            core(10, f"Total number of IPU cycles: {self._cycles()}")
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
            self._warn_once("grad", "Input tensor has requires_grad=True set. This tensor will be detached because backward "
                                    "pass via inputs is not supported.")
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
        try:
            self._compile_for_device(arguments)
        except BaseException:
            if self._device is None:
                _hardware.release(self)
            raise

    def _compile_for_device(self, arguments):
        start = time.perf_counter()
        options = self._options
        if options.ipu_model is not None:
            core(20, f"From the user configuration: Ipu model: {'Enabled' if options.ipu_model else 'Disabled'}")
        validate(options.toDict())
        plan = Plan.of(options, self._training)
        self._before_compilation(plan)
        with _impl.compile_hooks():
            built = build(self._user_model, options, self._training, arguments, plan)
            self._built, self._arguments = built, arguments
            if core_enabled(10):
                for line in _ir.placement_lines(built, options):
                    core(10, line)
            _placement.check(built.compilation.blocks, options, plan, self._training)
            self._check_buffers(built, plan)
            built.extra["prints"] = [self._value_of(tensor) for tensor, _, _ in built.compilation.prints]
            finite = built.compilation.finite()
            built.extra["prints"] += [] if finite is None else [finite]
            programs, state = self._trainer.programs(built, plan) if self._training else self._inference(built)
            self._names = {one.name: one.tensor for one in built.captured.state if one.tensor is not None}
            state = {**state, **self._model_state(), "seed": self._seed()}
            self._runner = self._make_runner(built, plan, programs, state)
        _ir.export_if_asked(self._runner.program)
        folder = _prediction.report_folder(options, self._training)
        if folder is not None:
            _prediction.write_report(self._runner.program, _placement.num_ipus(built.compilation.blocks), folder)
        watch(self._user_model, self)
        core(20, "Finished Poplar compilation")
        self._compilation_time = datetime.timedelta(seconds=time.perf_counter() - start)

    def _before_compilation(self, plan):
        """Looks for IPUs: takes them now if the connection is to be there always."""
        if not claims_hardware() or self._options.connection_type is ConnectionType.Never:
            return
        always = self._options.connection_type is ConnectionType.Always
        wanted = self._options.ipu_id
        first = _hardware.acquire(self, plan.replicas, wanted) if always else wanted or 0
        core(20, f"Acquired {plan.replicas} IPU(s): running on device Id {first}")
        if always:
            self._ipu = first
            core(20, f"Attached to device {first}")

    def _take_ipus(self):
        if claims_hardware() and self._ipu is None:
            self._ipu = _hardware.acquire(self, self._runner.replicas, self._options.ipu_id)
            core(20, f"Attached to device {self._ipu}")

    def _give_up_ipus(self):
        if self._ipu is not None:
            _hardware.release(self)
            self._ipu = None

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

    @staticmethod
    def _value_of(tensor):
        return tensor._pando.read()

    def _make_runner(self, built, plan, programs, state):
        """The device with its programs, and what a call does with them."""
        own = [one.name for one in built.captured.written_state if one.kind == "buffer"] if plan.replicas > 1 else []
        base = "main" if "main" in programs else "accumulate"
        names = [base] * plan.replicas
        for replica in range(1, plan.replicas if own else 1):
            # Each replica has the buffers that it writes to itself.
            names[replica] = f"{base}#{replica}"
            renamed = {name: f"{name}#{replica}" for name in own}
            programs[names[replica]] = programs[base].renamed(renamed)
            state.update({new: state[old] for old, new in renamed.items()})
        self._device = Device(programs, state)
        self._shared = SharedWeights(self._device)
        options = self._options
        written = [i for i, one in enumerate(built.captured.inputs) if one.written is not None]
        runner = Runner(
            self._device, plan, options.output_mode, options.output_return_period, len(built.extra["outputs"]), names,
            written, bool(options._Popart.options.get("syntheticDataMode")),
        )
        runner.program = programs[base]
        anchored = options.anchored_tensors
        for short in built.extra["anchors"]:
            long, mode, period = anchored[short]
            mode = options.output_mode if mode is OutputMode.Default else mode
            runner.anchors.append((mode, period))
            shown = {"All": "ALL", "EveryN": "EVERYN", "Final": "FINAL"}.get(mode.name, mode.name)
            core(10, f"Anchor {long} {shown}/{period if mode is OutputMode.EveryN else 1}")
        runner.replicas = plan.replicas
        runner.checks_finite = built.compilation.watched is not None
        runner.prints = [form for _, form, _ in built.compilation.prints]
        return runner

    def _inference(self, built):
        captured = built.captured
        values, dtypes = output_values(built)
        writes = captured.written_state
        written = [one for one in captured.inputs if one.written is not None]
        prints = built.extra["prints"]
        results = [*(one.written for one in writes), *values, *(one.written for one in written), *prints]
        params = [one.value for one in (*captured.state, *captured.inputs)]
        module = captured.finish(results, params)
        outputs = [*dtypes, *(one.dtype for one in written), *(TORCH_TYPES[value.dtype] for value in prints)]
        built.extra.update(outputs=dtypes, anchors=[], writes=[one.name for one in writes if one.tensor is not None])
        names = [one.name for one in captured.state]
        program = Program(module, names, [one.name for one in writes], built.names, outputs)
        return {"main": program}, {}

    # Weights.

    def _model_state(self):
        return {name: plain_view(tensor) for name, tensor in self._names.items()}

    def _seed(self):
        seed = torch.initial_seed() if self._options.random_seed is None else self._options.random_seed
        return torch.tensor([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], dtype=torch.int64).to(torch.uint32)

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
        self._copy_to_host()

    def copyWeightsToHostIfNeeded(self):
        """The same, if the device's are newer. Says whether they were."""
        if not self._host_is_stale or self._device is None:
            return False
        logger.debug("Implicit copyWeightsToHost()")
        self.copyWeightsToHost()
        return True

    def _copy_to_host(self):
        logger.debug("Writing weights from IPU to host")
        self._host_is_stale = False  # first: copying uses the tensors
        for name, tensor in self._names.items():
            if not self._shared.has(name, tensor):
                copy_into(plain_view(tensor), self._device.read(name))
        self._shared.end()

    def _show_host(self):
        """Somebody uses the user model's tensors: they have to have the newest elements, and keep them."""
        self.copyWeightsToHostIfNeeded()
        if self._shared:
            self._shared.end()

    def copyWeightsToDevice(self):
        """Overwrites the device's parameters and buffers by the user model's."""
        self._require_compiled()
        logger.debug("Writing weights from host to IPU memory")
        for owner in _owners_of(self._names.values()):
            if owner is not self:
                owner.copyWeightsToHostIfNeeded()
        if self._host_is_stale:
            self._shared.restore()
        self._host_is_stale = False
        self._refresh_names()
        for name, tensor in self._names.items():
            shared = self._shared.has(name, tensor) or self._training and self._shared.lend(name, tensor)
            if not shared:
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

    def setOptimizer(self, optimizer):
        """Takes over an optimizer's numbers; its kind and its constants stay those that were compiled."""
        assert self._trainer is not None, "setOptimizer() is for training models"
        self._trainer.set_optimizer(optimizer)

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
        self._take_ipus()
        self._attached = True
        self._log_random("Setting")
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
        self._log_random("Reading")
        self._give_up_ipus()
        core(10, "Detached from device")
        self._attached = False

    def destroy(self):
        """Forgets the compiled program; the user model is as it was, with its newest weights."""
        if self._training:
            self._user_model.__dict__.pop("destroy", None)
        if self._device is None:
            return
        self.copyWeightsToHostIfNeeded()
        if self._trainer is not None:
            self._trainer.destroyed()
        unwatch(self._user_model, self)
        self._give_up_ipus()
        self._reset()

    # Files.

    def compileAndExport(self, filename, *args, export_model=True, **kwargs):
        """Compiles and writes the result to a file (or into a folder)."""
        if self._device is None:
            self._compile(self._bind(args, kwargs))
        self.save(filename, export_model, save_rng_state=False)

    def save(self, filename, export_model=True, save_rng_state=True):
        """Writes the compiled model to a file, with the module, its weights and its optimizer if `export_model`."""
        self._require_compiled()
        self.copyWeightsToHostIfNeeded()
        model = optimizer = random = state = None
        if export_model:
            model, optimizer = self._user_model, self._trainer.optimizer if self._training else None
            state = self._trainer.optimizer_state() if self._training and self._attached else None
        if save_rng_state and self._attached:
            self._log_random("Reading")
            random = {name: self._device.read(name) for name in self._device.names() if name in _RANDOM}
        destroy = self._user_model.__dict__.pop("destroy", None) if self._training else None
        try:
            _export.write(filename, self._training, self._arguments, self._options, model, optimizer, random, state)
        finally:
            if destroy is not None:
                self._user_model.__dict__["destroy"] = destroy

    def loadExecutable(self, filename):
        """Takes over what a file was compiled for, with this executor's own model and options."""
        file = _export.File(filename)
        if file.training != self._training:
            kinds = ["inference", "training"]
            raise createPoptorchError(f"{filename} holds a model for {kinds[file.training]}, not for {kinds[self._training]}")
        self._load(file)

    def _load(self, file):
        args, kwargs = file.call()
        self._compile(self._bind(args, kwargs))
        if self._training:
            self._trainer.preload(file.optimizer_state())
        for name, tensor in (file.random() or {}).items():
            self._device.write(name, tensor)
        self._has_random_state = file.random() is not None
        if self._options.connection_type is ConnectionType.Always:
            self.attachToDevice()
        else:
            self._log_random("Setting")

    def _log_random(self, verb):
        """The seed, and how far random numbers have come if the model has run."""
        if verb == "Reading":
            core(10, "Reading random seed")
            core(10, "Reading RNG state")
            return
        core(10, f"Setting random seed to {self._device.read('seed')[0].item()}")
        if self._has_random_state or self._has_run:
            core(10, "Setting RNG state")

    @property
    def rng_state(self):
        """Random numbers go on from here: a list of integers."""
        self._require_compiled()
        return [int(part) for name in _RANDOM if self._device.has(name) for part in self._device.read(name).tolist()]

    @rng_state.setter
    def rng_state(self, state):
        self._require_compiled()
        parts = list(state)
        for name in _RANDOM:
            if self._device.has(name):
                self._device.write(name, torch.tensor(parts[:2], dtype=torch.int64).to(torch.uint32))
                parts = parts[2:]

    # Tensors inside.

    def getTensorNames(self):
        """Names for `Options.anchorTensor`."""
        assert self._device is not None, "getTensorNames() needs a compiled model"
        names = [f"input/{name}" for name in self._built.names]
        names += list(self._built.captured.regions) + list(self._names)
        return names + (self._trainer.tensor_names() if self._training else [])

    def getAnchoredTensor(self, short_name):
        """The tensor that `Options.anchorTensor` named, from the last run."""
        self._require_compiled()
        names = self._built.extra["anchors"]
        if short_name not in names:
            raise createPoptorchError(f"There is no anchored tensor {short_name}; there are: {', '.join(names) or 'none'}")
        return self._runner.anchored[names.index(short_name)]

    def _debugGetPopartIR(self):
        self._require_compiled()
        return _ir.as_json(self._built, self._runner.program, self._trainer)

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

    def cycleCount(self):
        """Cycles of one run on an IPU, as predicted."""
        if not self._options.log_cycle_count:
            raise createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to enable."
            )
        if not self._has_run:
            raise createPoptorchError("Please run the model at least once before obtaining cycle count.")
        return self._cycles()

    def _cycles(self):
        if self._cycle_count is None:
            ipus = _placement.num_ipus(self._built.compilation.blocks)
            self._cycle_count = _prediction.predict(self._runner.program, ipus)["cycles_per_step"]
        return self._cycle_count

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


class Destroy:
    """`model.destroy()` of a module that is being trained. Copies and pickles of the module have none."""

    def __init__(self, executor=None):
        self._executor = weakref.ref(executor) if executor is not None else lambda: None

    def __call__(self):
        executor = self._executor()
        if executor is not None:
            executor.destroy()

    def __deepcopy__(self, memo):
        return None

    def __reduce__(self):
        return (_impl._restoreWrapperIfNecessary, ())


def _no_backward(*_, **__):
    raise createPoptorchError(_NO_BACKWARD)


def _owners_of(tensors):
    found = []
    for tensor in tensors:
        owners = tensor.__dict__.get("_poptorch_owners")
        found += [owner for owner in (owners.executors() if owners is not None else ()) if owner not in found]
    return found
