"""Pando and ONNX Runtime on whole models: time, first output, memory, and whether the outputs agree.

    benches/run                                  everything: makes what it needs, takes a while
    benches/run --models 'resnet*' --threads 1   some of it
    benches/run --also-no-amx                    with the AMX unit and without
    benches/run --models 'int8/*'                quantised models (quantise.py)
    benches/run --check                          outputs only, for many more architectures

How: each engine has a process of its own (`engine.py`) that loads the model and stays. They are timed in turn, round by
round, so that what else the machine does hits all of them; only one runs at a time. A figure is the median over rounds of
the round's median; the ratio, of the engine's time to ONNX Runtime's (smaller is better), is the median of the rounds'
ratios. With one thread a process is pinned to one processor. First output and peak memory are those of fresh processes:
from loading the file to the first outputs, imports left out. Outputs are compared with ONNX Runtime's: the largest
difference as a share of the output's largest value.
"""

import argparse
import contextlib
import fnmatch
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy

from zoo import MODELS, file_of

HERE = pathlib.Path(__file__).parent
REFERENCE = "onnxruntime"
#: Pando with the AMX unit switched off, beside Pando with it.
NO_AMX = "pando-no-amx"
#: How far outputs may differ. f32 products in another order are far below the first two. The last computes
#: products of bf16, whose roundings (2^-9 of a value) add up over the layers.
LIMITS = {"highest": 1e-3, "high": 1e-3, "medium": 3e-2}
#: Of quantised models: a step of the last codes is 1/255 of their range, and in every layer a value in the middle of two
#: steps falls on the one or the other side.
INT8_LIMIT = 5e-2
#: A round lasts about this long, and at least one run.
ROUND_S = 0.4


class EngineError(Exception):
    """An engine's process has ended; the message is its last word."""


class Engine:
    """An engine's process with one model."""

    def __init__(self, label: str, model: pathlib.Path, threads: int, args: argparse.Namespace):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        kind = REFERENCE if label == REFERENCE else "pando"
        if args.builds.get(label):
            environment["PYTHONPATH"] = args.builds[label]
        options = {"matmul_precision": args.precision}
        # Builds of other versions may not have these.
        options |= {"isa": args.isa} if args.isa else {}
        options |= {"amx": False} if args.no_amx or label == NO_AMX else {}
        self.label = label
        self.outputs_file = tempfile.NamedTemporaryFile(suffix=".npz")
        self.errors_file = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, HERE / "engine.py", kind, model, str(threads), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors_file, text=True, env=environment,
        )  # fmt: skip
        self.start = self.ask(f"load {self.outputs_file.name}")
        self.runs = 1

    def ask(self, command: str) -> dict:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors_file.seek(0)
            words = self.errors_file.read().strip().splitlines() or [f"ended with status {self.process.returncode}"]
            raise EngineError(f"{self.label}: {words[-1]}")
        return json.loads(line)

    def outputs(self) -> list[numpy.ndarray]:
        """Of the first run, in order; exporters' and engines' names may differ."""
        with numpy.load(self.outputs_file.name) as file:
            return [file[name] for name in file.files]

    def settle(self) -> None:
        """Warms up, and finds out how many runs make a round."""
        seconds = min(self.ask("run 2")["times_s"])
        self.runs = max(1, round(ROUND_S / seconds))

    def round(self) -> float:
        if self.runs > 1:
            self.ask("run 1")  # The other engine has had the caches.
        return statistics.median(self.ask(f"run {self.runs}")["times_s"])

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def difference(actual: list[numpy.ndarray], expected: list[numpy.ndarray]) -> float:
    """Infinite where shapes differ or one has numbers and the other not."""
    if [a.shape for a in actual] != [e.shape for e in expected]:
        return math.inf
    worst = 0.0
    for a, e in zip(actual, expected):
        a, e = a.astype(numpy.float64), e.astype(numpy.float64)
        if not numpy.array_equal(numpy.isfinite(a), numpy.isfinite(e)):
            return math.inf
        finite = numpy.isfinite(e)
        scale = numpy.abs(e[finite]).max(initial=0.0) or 1.0
        worst = max(worst, float(numpy.abs(a[finite] - e[finite]).max(initial=0.0) / scale))
    return worst


def measure(name: str, threads: int, args: argparse.Namespace) -> dict:
    """A row of the table."""
    model = file_of(args.models_dir, name)
    model.read_bytes()  # So that the first to load it does not pay for the disk.
    starts = {label: [] for label in args.engines}
    for _ in range(args.starts):
        for label in args.engines:
            engine = Engine(label, model, threads, args)
            starts[label].append(engine.start)
            engine.close()
    engines = [Engine(label, model, threads, args) for label in args.engines]
    for engine in engines:
        starts[engine.label].append(engine.start)
        engine.settle()
    rounds = {label: [] for label in args.engines}
    for number in range(args.rounds):
        # Whoever goes first finds other caches than who follows.
        for engine in engines if number % 2 == 0 else reversed(engines):
            rounds[engine.label].append(engine.round())
    expected = engines[0].outputs()
    row = {"model": name, "threads": threads, "engines": {}}
    for engine in engines:
        label = engine.label
        ratios = [ours / theirs for ours, theirs in zip(rounds[label], rounds[REFERENCE])]
        row["engines"][label] = {
            "median_ms": statistics.median(rounds[label]) * 1e3,
            "best_ms": min(rounds[label]) * 1e3,
            "ratio": statistics.median(ratios),
            "ratio_range": [min(ratios), max(ratios)],
            "first_output_ms": statistics.median(start["first_output_s"] for start in starts[label]) * 1e3,
            "peak_mib": statistics.median(start["peak_bytes"] for start in starts[label]) / 2**20,
            "error": difference(engine.outputs(), expected),
            **engine.start["used"],
        }
        engine.close()
    return row


def limit_of(name: str, args: argparse.Namespace) -> float:
    return INT8_LIMIT if MODELS[name].int8 else LIMITS[args.precision]


def check(name: str, args: argparse.Namespace) -> dict:
    """Whether the outputs agree: a row without times."""
    model = file_of(args.models_dir, name)
    outputs = []
    for label in args.engines[:2]:
        try:
            engine = Engine(label, model, args.threads[-1], args)
        except EngineError as error:
            return {"model": name, "problem": str(error)}
        outputs.append(engine.outputs())
        engine.close()
    return {"model": name, "error": difference(outputs[1], outputs[0])}


def export(name: str, args: argparse.Namespace) -> bool:
    """In a process of its own: torch is large."""
    if file_of(args.models_dir, name).exists():
        return True
    command = [sys.executable, HERE / "zoo.py", args.models_dir, name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        print(done.stdout.strip(), file=sys.stderr)
    return done.returncode == 0


TITLES = ["model", "threads", "engine", "median ms", "best ms", "ratio", "range", "first ms", "peak MiB", "error"]


def cells(row: dict, label: str) -> list[str]:
    e = row["engines"][label]
    low, high = e["ratio_range"]
    return [
        row["model"], str(row["threads"]), label, f"{e['median_ms']:.2f}", f"{e['best_ms']:.2f}", f"{e['ratio']:.2f}",
        f"{low:.2f}-{high:.2f}", f"{e['first_output_ms']:.0f}", f"{e['peak_mib']:.0f}", f"{e['error']:.1e}",
    ]  # fmt: skip


def line(texts: list[str]) -> str:
    widths = [21, 7, 12, 9, 9, 5, 9, 8, 8, 7]
    aligned = [t.ljust(w) if i in (0, 2) else t.rjust(w) for i, (t, w) in enumerate(zip(texts, widths))]
    return "  ".join(aligned).rstrip()


def instructions(engine: dict) -> str:
    """What Pando has used."""
    names = {"isa": "instructions", "tile_unit": "unit for tiles", "matmul_precision": "products"}
    return ", ".join(f"{title} {engine[name]}" for name, title in names.items() if name in engine)


def geometric_means(rows: list[dict], args: argparse.Namespace) -> list[dict]:
    """Of the ratios, for each number of threads and engine."""
    means = []
    for threads in args.threads:
        for label in args.engines[1:]:
            ratios = [row["engines"][label]["ratio"] for row in rows if row["threads"] == threads]
            if ratios:
                means.append({"threads": threads, "engine": label, "ratio": statistics.geometric_mean(ratios)})
    return means


def machine() -> dict:
    """What the figures were measured on; a load of more than nothing beside us makes them worth less."""
    processor = next((l for l in open("/proc/cpuinfo") if l.startswith("model name")), "").partition(":")[2].strip()
    return {"processor": processor, "processors": os.cpu_count(), "load": os.getloadavg()[0]}


def compare_all(names: list[str], args: argparse.Namespace) -> bool:
    show = (lambda *_: None) if args.json else (lambda text: print(text, flush=True))
    show("{processor}, {processors} processors, load {load:.1f}".format(**machine()))
    show("ratio: the engine's time / ONNX Runtime's; less than 1 is faster than ONNX Runtime")
    show(line(TITLES))
    rows, problems = [], []
    for name, threads in [(name, threads) for threads in args.threads for name in names]:
        try:
            rows.append(measure(name, threads, args))
        except EngineError as error:
            problems.append(f"{name}, {threads} threads: {error}")
            continue
        for label in args.engines:
            show(line(cells(rows[-1], label)))
    means = geometric_means(rows, args)
    for label, used in sorted({(label, instructions(e)) for row in rows for label, e in row["engines"].items()}):
        if used:
            show(f"{label}: {used}")
    for mean in means:
        show(f"geometric mean, {mean['threads']} threads, {mean['engine']}: {mean['ratio']:.3f}")
    for row in rows:
        limit = limit_of(row["model"], args)
        wrong = [label for label, e in row["engines"].items() if not e["error"] < limit]
        problems += [f"{row['model']}: outputs of {label} differ by {limit} of the largest or more" for label in wrong]
    for problem in problems:
        print(problem, file=sys.stderr)
    if args.json:
        report = {"machine": machine(), "precision": args.precision, "rows": rows, "geometric_means": means}
        print(json.dumps({**report, "problems": problems}))
    return not problems


def check_all(names: list[str], args: argparse.Namespace) -> bool:
    rows = []
    for name in names:
        limit = limit_of(name, args)
        rows.append(check(name, args) if export(name, args) else {"model": name, "problem": "not exported"})
        text = rows[-1].get("problem") or f"{rows[-1]['error']:.1e}{'' if rows[-1]['error'] < limit else '  WRONG'}"
        if not args.json:
            print(f"{name:<36} {text}", flush=True)
    good = [row for row in rows if row.get("error", math.inf) < limit_of(row["model"], args)]
    if args.json:
        print(json.dumps({"precision": args.precision, "rows": rows}))
    else:
        print(f"{len(good)} of {len(rows)} models: outputs agree with ONNX Runtime's")
    return len(good) == len(rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/run", description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=[], action="append", metavar="PATTERN", help="names such as 'resnet*'")
    parser.add_argument("--threads", type=int, default=[], action="append", help="1 and 2 if not given; repeatable")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=2, help="further fresh processes for first output and memory")
    parser.add_argument("--precision", choices=LIMITS, default="highest", help="of Pando's f32 products")
    parser.add_argument("--isa", help="instructions for Pando to use: portable, avx2 or avx512 (without AMX but for the best)")
    parser.add_argument("--no-amx", action="store_true", help="Pando without the processor's AMX unit")
    parser.add_argument("--also-no-amx", action="store_true", help="Pando without the AMX unit, beside Pando with it")
    parser.add_argument("--check", action="store_true", help="compare outputs only, of all architectures")
    parser.add_argument("--also", default=[], action="append", metavar="LABEL=DIR",
                        help="another build of the package `pando`, in DIR, to measure beside this one")
    parser.add_argument("--models-dir", type=pathlib.Path, default=HERE.parent / "target/benches/models")
    parser.add_argument("--list", action="store_true", help="print the names of the models")
    parser.add_argument("--json", action="store_true")  # fmt: skip
    args = parser.parse_args()
    args.threads = args.threads or ([os.cpu_count()] if args.check else [1, 2])
    args.builds = dict(also.split("=", 1) for also in args.also)
    args.engines = [REFERENCE, "pando", *([NO_AMX] if args.also_no_amx else []), *args.builds]
    return args


def import_engines() -> None:
    """Says once what no process of an engine could do without."""
    done = subprocess.run([sys.executable, "-c", f"import {REFERENCE}, pando"], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1]
        sys.exit(f"{sys.executable} cannot import the engines ({reason}); benches/run makes and installs what they need")


def main() -> None:
    args = arguments()
    patterns = args.models or ["*"]
    candidates = [name for name, spec in MODELS.items() if args.check or args.models or spec.timed]
    names = [name for name in candidates if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    if not names:
        sys.exit(f"no model is called {' or '.join(patterns)}; --list names them")
    if args.list:
        print("\n".join(names))
        return
    import_engines()
    if args.check:
        sys.exit(0 if check_all(names, args) else 1)
    # All of them first: making a model would disturb the measuring of another.
    exported = [name for name in names if export(name, args)]
    sys.exit(0 if compare_all(exported, args) and exported == names else 1)


if __name__ == "__main__":
    main()
