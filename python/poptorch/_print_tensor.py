"""Printing a tensor of a running model."""

import sys
from dataclasses import dataclass, replace

from . import _impl


@dataclass(frozen=True)
class Format:
    """How a tensor is written."""

    title: str
    summarise_threshold: int
    edge_items: int
    max_line_width: int
    digits: int
    float_format: str
    separator: str
    open_bracket: str
    close_bracket: str

    def of_gradient(self):
        """The same for the tensor's gradient (assumption: it has the tensor's title as gradients are named)."""
        return replace(self, title=f"Gradient___{self.title}" if self.title else "Gradient")

    def text(self, array):
        """The whole array, or its edges if it is large."""
        title = f"{self.title}: " if self.title else ""
        return title + self._nested(array, 1, array.size > self.summarise_threshold)

    def number(self, value):
        """One element."""
        if isinstance(value, float):
            kind = {"fixed": "f", "scientific": "e", "none": "g"}.get(self.float_format)
            if kind is None:
                kind = "f" if value == 0 or 1e-4 <= abs(value) < 1e8 else "e"
            decimals = {"f": self._decimals(value), "e": max(0, self.digits - 1)}.get(kind, self.digits)
            return f"{value:.{decimals}{kind}}"
        return str(value)

    def _decimals(self, value):
        return max(0, self.digits - len(str(int(abs(value)))))

    def _nested(self, array, depth, short):
        if array.ndim == 0:
            return self.number(array.item())
        parts = self._edges(array, short)
        if array.ndim == 1:
            texts = ["..." if part is None else self.number(part.item()) for part in parts]
            return self.open_bracket + self._lines(texts, depth) + self.close_bracket
        indent = "\n" + " " * depth
        texts = ["..." if part is None else self._nested(part, depth + 1, short) for part in parts]
        return self.open_bracket + indent + indent.join(texts) + "\n" + " " * (depth - 1) + self.close_bracket

    def _edges(self, array, short):
        if not short or len(array) <= 2 * self.edge_items:
            return list(array)
        return [*array[: self.edge_items], None, *array[-self.edge_items :]]

    def _lines(self, texts, depth):
        """Numbers with separators, broken where a line would be too long."""
        lines, width = texts[0], depth + 1 + len(texts[0])
        for text in texts[1:]:
            if width + len(self.separator) + len(text) + 1 > self.max_line_width:
                lines += self.separator.rstrip(" ") + "\n" + " " * (depth + 1) + text
                width = depth + 1 + len(text)
            else:
                lines += self.separator + text
                width += len(self.separator) + len(text)
        return lines


def ipu_print_tensor(tensor, title="", print_gradient=True, summarise_threshold=1000, edge_items=3,
                     max_line_width=80, digits=4, float_format="auto", separator=" ", open_bracket="(",
                     close_bracket=")"):
    """Prints the tensor whenever the model runs, and its gradient in training. Returns it: use the result."""
    if float_format not in ("auto", "fixed", "scientific", "none"):
        raise ValueError(f'float_format must be "auto", "fixed", "scientific" or "none", not {float_format!r}')
    form = Format(title, summarise_threshold, edge_items, max_line_width, digits, float_format, separator,
                  open_bracket, close_bracket)
    state = _impl.current()
    if state is None:
        return tensor
    result = tensor.clone()
    state.note("ipu_print_tensor", result, (tensor,), {"format": form, "print_gradient": print_gradient})
    return result


def print_array(form, array):
    """Writes one array to stderr."""
    print(form.text(array), file=sys.stderr, flush=True)
