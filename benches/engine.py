"""A process that runs one model with one engine, as `compare.py` tells it, line by line on standard input:

    load FILE   loads the model, runs it once and writes the outputs to FILE (.npz)
    run N       runs it N times

Each answer is a line of JSON. Times are seconds. Only this process's own work is timed: imports are over before
the first command.
"""

import json
import os
import pathlib
import sys
import time


def pin(threads: int) -> None:
    """To as many processors as there are threads; the first often serves interrupts, so the last ones."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def peak_bytes() -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def onnxruntime_runner(path: str, threads: int, _options: dict):
    import onnxruntime

    def load():
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(None, inputs))), {}

    return load


def pando_runner(path: str, threads: int, options: dict):
    import pando

    def load():
        model = pando.load(path, threads=threads, **options)
        used = [name for name in ("matmul_precision", "isa", "tile_unit") if hasattr(model, name)]
        return model.run, {name: getattr(model, name) for name in used}

    return load


RUNNERS = {"onnxruntime": onnxruntime_runner, "pando": pando_runner}


def main() -> None:
    kind, path, threads, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    pin(threads)
    import numpy

    inputs = dict(numpy.load(pathlib.Path(path).with_suffix(".npz")))
    load = RUNNERS[kind](path, threads, options)
    run = None
    for line in sys.stdin:
        command, argument = line.split(maxsplit=1)
        if command == "load":
            start = time.perf_counter()
            run, used = load()
            loaded = time.perf_counter()
            outputs = run(inputs)
            first = time.perf_counter() - start
            answer = {"load_s": loaded - start, "first_output_s": first, "peak_bytes": peak_bytes(), "used": used}
            numpy.savez(argument.strip(), **outputs)
        else:
            times = []
            for _ in range(int(argument)):
                start = time.perf_counter()
                run(inputs)
                times.append(time.perf_counter() - start)
            answer = {"times_s": times}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
