"""LSTM, GRU and plain recurrent layers: the products of the input for all steps at once, then a repeat over the
steps."""

from __future__ import annotations

import torch

from ._types import graph_type
from ._value import Emitter, Value

#: Gates of each kind of cell.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def recurrent(capture, kind: str, *args):
    """As `torch.lstm` and its like are called: `(input, states, weights, has_biases, layers, dropout, train,
    bidirectional, batch_first)`. Packed sequences are left to torch."""
    if len(args) != 9 or not isinstance(args[7], bool) or isinstance(args[3], (list, tuple)):
        return NotImplemented
    x, states, params, has_biases, layers, dropout, train, bidirectional, batch_first = args
    states = list(states) if kind == "lstm" else [states]
    if capture.tracked(x).read() is None:
        return NotImplemented
    tensors = [x, *states, *params]
    values = capture.valued(tensors)
    inner = _projected_size(kind, states)
    dtype = graph_type(x.dtype)
    x_value, *state_values = (value.to(dtype) for value in values[: 1 + len(states)])
    weights = [value.to(dtype) for value in values[1 + len(states) :]]
    needs_grad = capture.needs_grad(tensors)
    layer = Layers(capture, kind, has_biases, 2 if bidirectional else 1, dropout if train else 0.0, inner, needs_grad)
    output, last = layer.run(x_value, state_values, weights, layers, batch_first)
    results = [capture.wrap(output, x.dtype, needs_grad, kind)]
    results += [capture.wrap(value, x.dtype, needs_grad, f"{kind}.last") for value in last]
    return tuple(results)


def _projected_size(kind: str, states: list[torch.Tensor]) -> bool:
    """Whether an LSTM's state is a projection of its memory."""
    return kind == "lstm" and states[0].shape[-1] != states[1].shape[-1]


class Layers:
    def __init__(self, capture, kind: str, has_biases: bool, directions: int, dropout: float, projects: bool, is_trained: bool):
        self.capture, self.kind, self.has_biases = capture, kind, has_biases
        self.directions, self.dropout, self.projects = directions, dropout, projects
        # The composite has an axis of gates of its own, which suits tiles; through its gradient the CPU takes half as
        # long again as through products with plain matrices (benches/train.py, lstm-2x512: 390 against 268 ms).
        self.is_composite = not projects and not is_trained

    @property
    def g(self) -> Emitter:
        return self.capture.emitter

    def run(self, x, states, weights, layers, batch_first):
        """The states of all steps, and the last ones of each kind."""
        per_cell = 2 + (2 if self.has_biases else 0) + (1 if self.projects else 0)
        x = x.swap(0, 1) if batch_first and x.rank == 3 else x
        batched = x.rank == 3
        if not batched:
            x, states = x.unsqueeze(1), [state.unsqueeze(1) for state in states]
        last: list[list[Value]] = [[] for _ in states]
        for layer in range(layers):
            outputs = []
            for direction in range(self.directions):
                cell = layer * self.directions + direction
                own = weights[cell * per_cell : (cell + 1) * per_cell]
                start = [state.pick(0, cell) for state in states]
                output, end = self.direction(x, start, own, direction == 1)
                outputs.append(output)
                for kept, state in zip(last, end):
                    kept.append(state.unsqueeze(0))
            x = self.g.concat(outputs, 2)
            if self.dropout and layer + 1 < layers:
                kept = self.capture.random("uniform", "f32", x.shape).ge(self.dropout)
                x = kept.select(x * (1 / (1 - self.dropout)), 0)
        ends = [self.g.concat(kept, 0) for kept in last]
        if not batched:
            return x.reshape(x.shape[0], x.shape[2]), [end.reshape(end.shape[0], end.shape[2]) for end in ends]
        return (x.swap(0, 1) if batch_first else x), ends

    def direction(self, x: Value, states: list[Value], weights: list[Value], backwards: bool):
        """[T, B, I] to [T, B, H]."""
        x = x.reverse([0]) if backwards else x
        weights = list(weights)
        w_input, w_state = weights[:2]
        b_input, b_state = weights[2:4] if self.has_biases else (None, None)
        projection = weights[-1] if self.projects else None
        if self.is_composite:
            gates = w_state.shape[0]
            biases = [b_input, b_state] if self.has_biases else [self.g.full(x.dtype, (gates,), 0)] * 2
            stack, *ends = self.g.composites(self.kind, [x, w_input, w_state, *biases, *states])
            return (stack.reverse([0]) if backwards else stack), ends
        products = x.dot(w_input, [], [(2, 1)])
        if self.has_biases:
            # A GRU's new gate scales its recurrent part, bias included; other cells only add.
            products = products + (b_input if self.kind == "gru" else b_input + b_state)
        steps, batch = x.shape[:2]
        stack = self.g.full(x.dtype, (steps, batch, states[0].shape[-1]), 0)
        constants = [products, w_state, *([b_state] if self.kind == "gru" and self.has_biases else [])]
        constants += [projection] if self.projects else []
        carried = self.repeat(steps, constants, stack, states)
        stack, ends = carried[len(constants)], carried[len(constants) + 1 :]
        return (stack.reverse([0]) if backwards else stack), ends

    def repeat(self, steps: int, constants: list[Value], stack: Value, states: list[Value]) -> list[Value]:
        """Carried are what a step needs, the states of all steps, and the states."""
        carried = [*constants, stack, *states]
        frame = self.g.begin(f"{self.kind}_step")
        try:
            counter = self.g.param("step", "i32", ())
            inner = [self.g.param(f"carried.{at}", value.dtype, value.shape) for at, value in enumerate(carried)]
            products, w_state, *rest = inner[: len(constants)]
            x = products.gather(counter, 0)
            new = self.cell(x, inner[len(constants) + 1 :], w_state, rest)
            update = new[0].unsqueeze(0)
            filled = inner[len(constants)].scatter(counter.reshape(1), update, 0)
            outer = self.g.end([*inner[: len(constants)], filled, *new])
        except BaseException:
            self.g.abandon()
            raise
        assert not outer, "a step uses only what it is given"
        return self.g.ops(f"repeat count={steps} body=@{frame.name}", carried)

    def cell(self, x: Value, states: list[Value], w_state: Value, rest: list[Value]) -> list[Value]:
        hidden = states[0]
        product = hidden.dot(w_state, [], [(1, 1)])
        if self.kind == "gru":
            return [_gru(x, hidden, product + rest[0] if rest else product)]
        if self.kind != "lstm":
            total = x + product
            return [total.tanh() if self.kind == "rnn_tanh" else total.maximum(0)]
        new, memory = _lstm(x + product, states[1])
        if self.projects:
            new = new.dot(rest[-1], [], [(1, 1)])
        return [new, memory]


def _part(x: Value, which: int, size: int) -> Value:
    return x.slice(1, which * size, (which + 1) * size)


def _lstm(gates: Value, memory: Value) -> tuple[Value, Value]:
    """Gates in the order input, forget, cell, output."""
    size = memory.shape[1]
    enter, forget, new, leave = (_part(gates, which, size) for which in range(4))
    sigmoid = lambda x: x.composite("sigmoid")
    memory = sigmoid(forget) * memory + sigmoid(enter) * new.tanh()
    return sigmoid(leave) * memory.tanh(), memory


def _gru(x: Value, hidden: Value, product: Value) -> Value:
    """Gates in the order reset, update, new."""
    size = hidden.shape[1]
    reset, update = ((_part(x, at, size) + _part(product, at, size)).composite("sigmoid") for at in range(2))
    new = (_part(x, 2, size) + reset * _part(product, 2, size)).tanh()
    return (1.0 - update) * new + update * hidden
