"""What random_ops.py draws for each operator: operands, attributes, version. `com.microsoft:` stands before the names of
ONNX Runtime's own operators. The operators are in random_ops_tensors.py and the files beside it."""

import dataclasses

import numpy as np

CASES = {}


@dataclasses.dataclass
class Case:
    op: str
    inputs: list
    attributes: dict = dataclasses.field(default_factory=dict)
    outputs: int = 1
    opset: int | None = None
    domain: str = ""
    # Positions of operands that must be initializers.
    weights: tuple = ()
    rtol: float | None = None
    atol: float | None = None
    # From x0, x1, … to y0, …, instead of the operator alone.
    nodes: list | None = None


class Draw:
    def __init__(self, rng):
        self.rng = rng

    def chance(self, p):
        return self.rng.random() < p

    def int(self, low, high):
        """Both ends included."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, *items):
        return items[self.int(0, len(items) - 1)]

    def shape(self, low=1, high=4, largest=5, smallest=1):
        return [self.int(smallest, largest) for _ in range(self.int(low, high))]

    def axis(self, rank):
        return self.int(-rank, rank - 1)

    def axes(self, rank, least=1):
        count = self.int(least, rank)
        axes = self.rng.permutation(rank)[:count]
        return [int(axis) - (rank if self.chance(0.3) else 0) for axis in axes]

    def float_type(self):
        return self.pick(np.float32, np.float32, np.float32, np.float16)

    def floats(self, shape, low=-3.0, high=3.0, dtype=np.float32):
        return self.rng.uniform(low, high, shape).astype(dtype)

    def ints(self, shape, low, high, dtype=np.int64):
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def bools(self, shape):
        return self.rng.random(shape) < 0.5

    def specials(self, array):
        """Infinities, NaN and signed zeros at some places."""
        flat = array.reshape(-1)
        for value in (np.inf, -np.inf, np.nan, 0.0, -0.0):
            if flat.size and self.chance(0.5):
                flat[self.int(0, flat.size - 1)] = value
        return array

    def numbers(self, shape, *dtypes):
        dtype = self.pick(*dtypes)
        if np.issubdtype(dtype, np.floating):
            return self.floats(shape, dtype=dtype)
        low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -6
        return self.ints(shape, low, 6, dtype)

    def broadcastable(self, shape):
        """A shape that broadcasts to or with the given one."""
        own = [size if self.chance(0.7) else 1 for size in shape]
        return own[self.int(0, len(own)) :] if self.chance(0.4) else own


def case(*names):
    def register(draw_case):
        for name in names:
            CASES[name] = lambda draw, name=name: draw_case(draw, name)
        return draw_case

    return register
