"""Loops and branches of a model as functions of the graph. Values of the model that a body uses become parameters of
its function: the emitter collects them (`lifted`)."""

from ._errors import createPoptorchError


def repeat(capture, count, body, inputs):
    """`inputs = body(*inputs)`, `count` times, on copies of the inputs."""
    emitter = capture.emitter
    values, dtypes = [capture.value(tensor) for tensor in inputs], [tensor.dtype for tensor in inputs]
    frame = emitter.begin("loop")
    try:
        emitter.param("iteration", "i32", ())
        carried = [
            capture.wrap(emitter.param(f"in{i}", value.dtype, value.shape), dtype, name=None)
            for i, (value, dtype) in enumerate(zip(values, dtypes))
        ]
        results = _values(capture, _listed(body(*carried)))
        _check_carried(values, results)
        results = [after.to(before.dtype) for before, after in zip(values, results)]
        # What the body takes from outside stays the same from one iteration to the next.
        outer = emitter.end([*results, *(inner for _, inner in frame.lifted.values())])
    except BaseException:
        _abandon(emitter, frame)
        raise
    results = emitter.ops(f"repeat count={count} body=@{frame.name}", [*values, *outer])
    return [capture.wrap(value, dtype) for value, dtype in zip(results, dtypes)]


def _check_carried(before, after):
    if len(before) != len(after):
        raise createPoptorchError(f"The body of for_loop returns {len(after)} tensors for {len(before)} inputs")
    for i, (old, new) in enumerate(zip(before, after)):
        if old.shape != new.shape:
            raise createPoptorchError(f"The body of for_loop changes the shape of tensor {i}: {old.shape} to {new.shape}")


def branch(capture, condition, then, otherwise):
    """One of two bodies; both get the same parameters: what either of them uses."""
    emitter = capture.emitter
    used = {}
    for body, inputs in (then, otherwise):
        frame, _, _ = _branch(capture, body, inputs, [])
        used.update({key: value for key, (value, _) in frame.lifted.items()})
        emitter.abandon()
    names, outcomes, dtypes = [], [], []
    for body, inputs in (then, otherwise):
        frame, results, types = _branch(capture, body, inputs, used.values())
        _check_branches(outcomes, results)
        outcomes.append(results)
        outer = emitter.end(results)
        names.append(frame.name)
        dtypes = types
    predicate = capture.value(condition).reshape(()).to("bool")
    results = emitter.ops(f"if then=@{names[0]} else=@{names[1]}", [predicate, *outer])
    return [capture.wrap(value, dtype) for value, dtype in zip(results, dtypes)]


def _branch(capture, body, inputs, used):
    emitter = capture.emitter
    frame = emitter.begin("branch")
    try:
        for value in used:
            emitter._id(value)
        copies = [capture.wrap(capture.value(tensor), tensor.dtype, name=None) for tensor in inputs]
        tensors = _listed(body(*copies))
        values = _values(capture, tensors)
        for value in values:
            emitter._id(value)
        return frame, values, [tensor.dtype for tensor in tensors]
    except BaseException:
        _abandon(emitter, frame)
        raise


def _check_branches(outcomes, results):
    types = [[value.type for value in values] for values in (*outcomes, results)]
    if len(types) == 2 and types[0] != types[1]:
        raise createPoptorchError(f"The bodies of cond return different types: {types[0]} and {types[1]}")


def _values(capture, tensors):
    try:
        return [capture.value(tensor) for tensor in tensors]
    except NotImplementedError:
        capture.check_problems()  # says which operator it was
        raise


def _listed(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _abandon(emitter, frame):
    if frame in emitter.frames:
        emitter.abandon()
