"""Times of a call, as measured: when each input of each micro-batch went in, and each output came out."""

import time


class Counters:
    """Seconds since the call began, by input or output, then by step."""

    def __init__(self, inputs, outputs):
        self._start = time.perf_counter()
        self._inputs, self._outputs = inputs, outputs
        self.values = {name: [] for name in ("input", "input_complete", "output", "output_complete")}

    def now(self):
        """Seconds since the call began."""
        return time.perf_counter() - self._start

    def add(self, kind, begin, end):
        """A micro-batch's inputs (or outputs) were moved from `begin` to `end`."""
        self.values[kind].append(begin)
        self.values[f"{kind}_complete"].append(end)

    def lists(self):
        """[tensor][step] seconds; `[[]]` for a model without any."""
        counts = {"input": self._inputs, "output": self._outputs}
        return {name: [list(times) for _ in range(counts[name.split("_")[0]])] or [[]]
                for name, times in self.values.items()}

    def latencies(self):
        """(host to device, compute, device to host, all) as lists of seconds, one a step that gave outputs."""
        v = self.values
        steps = list(zip(v["input"], v["input_complete"], v["output"], v["output_complete"]))
        return tuple(map(list, zip(*[(b - a, c - b, d - c, d - a) for a, b, c, d in steps]))) or ([], [], [], [])


def summary(seconds):
    """(minimum, maximum, average); zeros when there is nothing."""
    return (min(seconds), max(seconds), sum(seconds) / len(seconds)) if seconds else (0.0, 0.0, 0.0)
