"""From the user's model to an executable: capture, checks, and the programs of inference."""

from pando.torch._types import TORCH_TYPES

from . import _ir, _placement
from ._build import build, output_values
from ._device import Program, Step
from ._errors import createPoptorchError
from ._executable import Executable, Leaf, TrainedWeight
from ._logging import core, core_enabled


def compile_model(model, options, training, arguments, plan, trainer, groupings):
    """The executable of a model for calls with such arguments."""
    built = build(model, options, training, arguments, plan, groupings)
    places = list(built.compilation.blocks.places())
    if core_enabled(10):
        for line in _ir.placement_lines(places, built.captured.regions, options):
            core(10, line)
    _placement.check(places, options, plan, training)
    own_buffers = _check_buffers(built, options, plan)
    _add_prints(built, training)
    programs, state, weights = trainer.programs(built, plan, groupings) if training else (*_inference(built), [])
    extra = built.extra
    captured = built.captured
    return Executable(
        programs=programs, base="main" if "main" in programs else "accumulate", state=state,
        tensors=[one.name for one in captured.state if one.tensor is not None], own_buffers=own_buffers,
        inputs=built.names, written_inputs=[i for i, one in enumerate(captured.inputs) if one.written is not None],
        structure=built.structure,
        leaves=[Leaf.TENSOR if hasattr(leaf, "value") else leaf for leaf in built.outputs],
        num_outputs=len(extra["outputs"]), writes=extra["writes"], prints=extra["formats"],
        checks_finite=built.compilation.watched is not None, places=places, regions=dict(captured.regions),
        multi_convs=built.compilation.multi_convs, anchors=extra["anchors"],
        weights=[TrainedWeight(w.name, w.group, w.slots, w.copies) for w in weights],
        locations={name: place for name, place in (built.compilation.capture.locations or {}).items() if place},
    )


def _check_buffers(built, options, plan):
    """The buffers that each replica changes for itself."""
    known = {state.name for state in built.captured.state if state.kind == "buffer"}
    for name in options._Popart.options.get("updatableNamedBuffers", ()):
        if name not in known:
            raise createPoptorchError(f"updatableNamedBuffers: the model has no buffer {name}")
    buffers = [state.name for state in built.captured.written_state if state.kind == "buffer"]
    if plan.replicas > 1 and buffers and options.broadcast_buffers:
        raise createPoptorchError(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming "
            "out of sync between replicas, you can disable buffer broadcasting using "
            "poptorch.Options.broadcastBuffers(False)."
        )
    return buffers if plan.replicas > 1 else []


def _add_prints(built, training):
    """Tensors to print, then those whose gradients are to be printed, then whether everything is finite."""
    prints = built.compilation.prints
    built.extra["prints"] = [tensor._pando.read() for tensor, _, _ in prints]
    built.extra["formats"] = [form for _, form, _ in prints]
    built.extra["print_gradients"] = [
        (tensor._pando.read(), form.of_gradient()) for tensor, form, of_gradient in prints
        if training and of_gradient and tensor.is_floating_point()
    ]
    finite = built.compilation.finite()
    built.extra["finite"] = [] if finite is None else [finite]


def _inference(built):
    captured = built.captured
    values, dtypes = output_values(built)
    writes = captured.written_state
    written = [one for one in captured.inputs if one.written is not None]
    prints = [*built.extra["prints"], *built.extra["finite"]]
    results = [*(one.written for one in writes), *values, *(one.written for one in written), *prints]
    outputs = [*dtypes, *(one.dtype for one in written), *(TORCH_TYPES[value.dtype] for value in prints)]
    built.extra.update(outputs=dtypes, anchors=[], writes=[one.name for one in writes if one.tensor is not None])
    written_names = [one.name for one in writes]
    if captured.host_calls:
        return {"main": _program_in_parts(built, results, written_names, outputs)}, {}
    params = [one.value for one in (*captured.state, *captured.inputs)]
    module = captured.finish(results, params)
    return {"main": Program(module, [one.name for one in captured.state], written_names, built.names, outputs)}, {}


def _program_in_parts(built, results, writes, outputs):
    """A program whose graph host calls divide: steps that each run a part and a call, then the last part."""
    captured = built.captured
    state = {_key(one.value): one.name for one in captured.state}
    known = {_key(one.value): position for position, one in enumerate(captured.inputs)}
    *parts, last = captured.finish_parts(results)

    def program(part, outputs, writes=()):
        reads = [state[_key(value)] for value in part.params if _key(value) in state]
        takes = [known[_key(value)] for value in part.params if _key(value) not in state]
        names = [f"part.{i}" for i in range(len(takes))]
        return Program(part.module, reads, list(writes), names, outputs, takes=takes)

    steps = []
    for part, call in zip(parts, captured.host_calls):
        one = program(part, [TORCH_TYPES[value.dtype] for value in part.results])
        for value in part.results:
            known[_key(value)] = len(known)
        arguments = [known[_key(value)] for value in call.arguments]
        for value in call.results:
            known[_key(value)] = len(known)
        steps.append(Step(one, one.takes, call, arguments))
    whole = program(last, outputs, writes)
    whole.steps = steps
    return whole


def _key(value):
    return id(value.frame), value.id
