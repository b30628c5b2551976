"""`PoplarExecutor`: a wrapped model. Compiles on the first call, runs, and keeps the host's weights in step."""

import datetime
import time
import weakref

import torch

from . import _hardware, _impl, _ir, _prediction, _signature
from ._arguments import rebuild
from ._batches import Plan
from ._blocks import module_repr
from ._device import Device
from ._errors import createPoptorchError
from ._executable import Leaf
from ._files import RANDOM, Files
from ._groups import name_in_group
from ._hardware import claims_hardware
from ._host_model import unwatch, watch
from ._logging import core, logger
from ._measures import Measures
from ._option_keys import validate
from ._run import Runner
from ._shared_weights import SharedWeights
from ._trainer import Trainer
from ._weights import Weights
from .enums import ConnectionType, OutputMode

_NOT_COMPILED = "Model has not been compiled or has been destroyed."
_NO_BACKWARD = (
    "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
    "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you should "
    "use a trainingModel instead."
)


class PoplarExecutor(Weights, Files, Measures):
    """Do not make one: `trainingModel` and `inferenceModel` do. Attributes that it has not are the user model's."""

    def __init__(self, model, options, training, optimizer=None):
        self._user_model = model
        self._training = training
        self._options = options.clone()
        if self._options.defaultOutputMode():
            self._options.outputMode(OutputMode.Final if training else OutputMode.All)
        self._options._freeze()
        self._signature = None
        self._groupings = {}  # name of a tensor -> how replicas share it
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
        self._executable = None
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
        if self._executable.writes:
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
        leaves = [self._output(next(outputs)) if leaf is Leaf.TENSOR else leaf for leaf in self._executable.leaves]
        return rebuild(self._executable.structure, leaves)

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

    def _compile(self, arguments, executable=None):
        """Puts the programs on the device: those given, or what the model compiles to."""
        try:
            self._compile_for_device(arguments, executable)
        except BaseException:
            if self._device is None:
                _hardware.release(self)
            raise

    def _compile_for_device(self, arguments, executable):
        start = time.perf_counter()
        options = self._options
        if options.ipu_model is not None:
            core(20, f"From the user configuration: Ipu model: {'Enabled' if options.ipu_model else 'Disabled'}")
        validate(options.toDict())
        plan = Plan.of(options, self._training)
        self._before_compilation(plan)
        with _impl.compile_hooks():
            if self._training:
                self._trainer.begin()
            executable = executable or self._executable_for(arguments, plan)
            self._install(executable, arguments, plan)
        _ir.export_if_asked(executable)
        _prediction.write_reports(executable, options, self._training)
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

    def _install(self, executable, arguments, plan):
        """The device with the programs and the state they need, and what a call does with them."""
        by_name = self._tensors_by_name()
        self._executable, self._arguments = executable, arguments
        self._names = {name: by_name[name] for name in executable.tensors}
        state = {**executable.state, **self._model_state(), "seed": self._seed()}
        if "~rounding_seed" in state:
            state["~rounding_seed"] = _words(torch.initial_seed() & 0xFFFFFFFF)
        programs, names = self._programs_of_replicas(executable, plan)
        self._device = Device(programs, state)
        self._shared = SharedWeights(self._device)
        self._runner = self._make_runner(executable, plan, names)
        if self._training:
            self._trainer.compiled(executable)

    def _programs_of_replicas(self, executable, plan):
        """All programs, and which of them runs each replica: the same one over other state where replicas differ."""
        programs, known, names = dict(executable.programs), {}, []
        for replica in range(plan.replicas):
            renamed = self._names_of_replica(executable, replica)
            key = tuple(sorted(renamed.items()))
            if key not in known:
                known[key] = f"{executable.base}#{replica}" if renamed else executable.base
                programs[known[key]] = programs[executable.base].renamed(renamed)
            names.append(known[key])
        return programs, names

    def _names_of_replica(self, executable, replica):
        """Name in the program -> name on the device, of all that the replica does not share with the first one."""
        renamed = {name: name_in_group(name, replica) for name in executable.own_buffers} if replica else {}
        slots = {weight.name: [name for _, name in weight.slots] for weight in executable.weights}
        for name, grouping in self._groupings.items():
            group = grouping.group_of(replica)
            own = [name, f"~accumulator~{name}", *slots.get(name, ())] if group else []
            renamed.update((one, name_in_group(one, group)) for one in own)
        return renamed

    def _make_runner(self, executable, plan, names):
        options = self._options
        runner = Runner(
            self._device, plan, options.output_mode, options.output_return_period, executable.num_outputs, names,
            executable.written_inputs, bool(options._Popart.options.get("syntheticDataMode")),
        )
        anchored = options.anchored_tensors
        for short in executable.anchors:
            long, mode, period = anchored[short]
            mode = options.output_mode if mode is OutputMode.Default else mode
            runner.anchors.append((mode, period))
            shown = {"All": "ALL", "EveryN": "EVERYN", "Final": "FINAL"}.get(mode.name, mode.name)
            core(10, f"Anchor {long} {shown}/{period if mode is OutputMode.EveryN else 1}")
        runner.replicas = plan.replicas
        runner.checks_finite = executable.checks_finite
        runner.prints = executable.prints
        return runner

    def _seed(self):
        seed = torch.initial_seed() if self._options.random_seed is None else self._options.random_seed
        return _words(seed)

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

    # Random numbers.

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
        return [int(part) for name in RANDOM if self._device.has(name) for part in self._device.read(name).tolist()]

    @rng_state.setter
    def rng_state(self, state):
        self._require_compiled()
        parts = list(state)
        for name in RANDOM:
            if self._device.has(name):
                self._device.write(name, torch.tensor(parts[:2], dtype=torch.int64).to(torch.uint32))
                parts = parts[2:]

    # Tensors inside.

    def getTensorNames(self):
        """Names for `Options.anchorTensor`."""
        assert self._device is not None, "getTensorNames() needs a compiled model"
        names = [f"input/{name}" for name in self._executable.inputs]
        names += list(self._executable.regions) + list(self._names)
        return names + (self._trainer.tensor_names() if self._training else [])

    def getAnchoredTensor(self, short_name):
        """The tensor that `Options.anchorTensor` named, from the last run."""
        self._require_compiled()
        names = self._executable.anchors
        if short_name not in names:
            raise createPoptorchError(f"There is no anchored tensor {short_name}; there are: {', '.join(names) or 'none'}")
        return self._runner.anchored[names.index(short_name)]

    def _debugGetPopartIR(self):
        self._require_compiled()
        return _ir.as_json(self._executable, self._trainer)

    def _require_compiled(self):
        if self._device is None:
            raise createPoptorchError(_NOT_COMPILED)

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


def _words(number):
    """A seed as the device has it: the low word and the next one."""
    return torch.tensor([number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF], dtype=torch.int64).to(torch.uint32)
