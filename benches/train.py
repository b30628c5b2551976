"""Training steps of Pando (through poptorch) beside PyTorch's, eager and compiled: time, peak memory, first step, losses.

    benches/run train                    (or: python benches/train.py, where pando-ipu and torch are installed)
    benches/run train --models bert-base --threads 1 --json

How: each engine has a process of its own that builds the model with seeded weights and stays; all of them are given the
same random batches. They are timed in turn, round by round; only one runs at a time. The ratio, of Pando's time to
PyTorch's (smaller is better), is the median of the rounds' ratios. The floor is the multiply-add units: a step takes
three times the products of a forward pass, at about 118 GFLOP/s a core in f32 on a Zen 4.
"""

import argparse
import fnmatch
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time

MODELS = ("resnet50-b16", "bert-base-b8-s128", "lstm-2x512")
ENGINES = ("pando", "eager", "compile")
#: Largest relative difference of the losses of the first step, and of the third. Steps amplify roundings: PyTorch's own
#: third losses of ResNet-50 differ by 0.8 % between one thread and two.
LOSS_LIMITS = (1e-4, 2e-2)


def model_of(name):
    """A module that returns (outputs, loss), a function that draws a batch, and its optimizer's class and options."""
    import torch
    from torch import nn

    class Classifier(nn.Module):
        def __init__(self, body, loss):
            super().__init__()
            self.body, self.loss = body, loss

        def forward(self, x, labels):
            scores = self.body(x)
            return scores, self.loss(scores, labels)

    if name == "resnet50-b16":
        import torchvision

        draw = lambda: (torch.randn(16, 3, 224, 224), torch.randint(1000, (16,)))
        sgd = ("SGD", {"lr": 0.01, "momentum": 0.9})
        return Classifier(torchvision.models.resnet50(), nn.CrossEntropyLoss()), draw, sgd
    if name == "bert-base-b8-s128":
        from transformers import BertConfig, BertForMaskedLM

        config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)

        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.bert = BertForMaskedLM(config)

            def forward(self, tokens, labels):
                out = self.bert(input_ids=tokens, labels=labels)
                return out.logits[:, 0, :8], out.loss

        tokens = lambda: torch.randint(config.vocab_size, (8, 128))
        return Masked(), lambda: (tokens(), tokens()), ("AdamW", {"lr": 1e-4, "weight_decay": 0.01})

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(512, 512, num_layers=2), nn.Linear(512, 10)
            self.loss = nn.CrossEntropyLoss()

        def forward(self, x, labels):
            scores = self.head(self.lstm(x)[0][-1])
            return scores, self.loss(scores, labels)

    draw = lambda: (torch.randn(64, 32, 512), torch.randint(10, (32,)))
    return Tagger(), draw, ("SGD", {"lr": 0.01, "momentum": 0.9})


def step_of(engine, module, optimizer):
    """A function from a batch to the loss, which makes a step."""
    import torch

    kind, options = optimizer
    if engine == "pando":
        import poptorch

        trained = poptorch.trainingModel(
            module, poptorch.Options(), getattr(poptorch.optim, kind)(module.parameters(), **options)
        )
        return lambda *batch: float(trained(*batch)[1])
    optimizer = getattr(torch.optim, kind)(module.parameters(), **options)
    forward = torch.compile(module) if engine == "compile" else module

    def step(*batch):
        optimizer.zero_grad(set_to_none=True)
        loss = forward(*batch)[1]
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def work(engine, name, threads):
    """A worker: a line of JSON for the first steps, then one for every line that comes."""
    import torch

    torch.set_num_threads(threads)
    os.environ.setdefault("PANDO_NUM_THREADS", str(threads))
    torch.manual_seed(0)
    module, draw, optimizer = model_of(name)
    module.train()
    batch = draw()
    step = step_of(engine, module, optimizer)
    begin = time.perf_counter()
    losses = [step(*batch)]
    first = time.perf_counter() - begin
    losses += [step(*batch) for _ in range(2)]
    tell({"first_s": first, "losses": losses})
    for _ in sys.stdin:
        begin = time.perf_counter()
        step(*batch)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        tell({"seconds": time.perf_counter() - begin, "peak_mib": peak})


def tell(message):
    print(json.dumps(message), flush=True)


class Worker:
    def __init__(self, engine, name, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), PANDO_NUM_THREADS=str(threads))
        command = [sys.executable, __file__, "--worker", engine, name, str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.start = self.hear()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended with status {self.process.wait()}; its last words are above")
        return json.loads(line)

    def round(self):
        print(file=self.process.stdin, flush=True)
        return self.hear()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(name, threads, engines, rounds):
    workers = {engine: Worker(engine, name, threads) for engine in engines}
    for worker in workers.values():
        worker.round()
    seconds = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine, worker in workers.items():
            last = worker.round()
            seconds[engine].append(last["seconds"])
            worker.peak_mib = last["peak_mib"]
    row = {"model": name, "threads": threads, "engines": {}}
    for engine, worker in workers.items():
        ratios = [own / other for own, other in zip(seconds["pando"], seconds[engine])]
        row["engines"][engine] = {
            "step_ms": 1e3 * statistics.median(seconds[engine]),
            "pando_takes": statistics.median(ratios),
            "peak_mib": worker.peak_mib,
            **worker.start,
        }
        worker.close()
    expected = row["engines"].get("eager", {}).get("losses", [])
    own = row["engines"]["pando"]["losses"]
    row["loss_differences"] = [abs(a - b) / abs(b) for a, b in zip(own, expected)]
    return row


def close(differences):
    return not differences or (differences[0] <= LOSS_LIMITS[0] and differences[-1] <= LOSS_LIMITS[1])


def show(row):
    for engine, figures in row["engines"].items():
        print(
            f"{row['model']:<18} {row['threads']:>7} {engine:<8} {figures['step_ms']:>9.1f} {figures['pando_takes']:>11.2f}"
            f" {figures['peak_mib']:>9.0f} {figures['first_s']:>8.1f}  {figures['losses'][-1]:.5f}",
            flush=True,
        )


def main():
    if sys.argv[1:2] == ["--worker"]:
        return work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="*", help="a pattern of names")
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--engines", nargs="+", choices=ENGINES[1:], default=["eager"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = [name for name in MODELS if fnmatch.fnmatch(name, args.models)]
    if not args.json:
        print(f"{'model':<18} threads engine     step ms pando takes  peak MiB  first s  third loss")
    rows = []
    for threads in args.threads:
        for name in names:
            rows.append(measure(name, threads, ["pando", *args.engines], args.rounds))
            if not args.json:
                show(rows[-1])
    ratios = [row["engines"]["eager"]["pando_takes"] for row in rows if "eager" in row["engines"]]
    mean = math.exp(statistics.mean(map(math.log, ratios))) if ratios else None
    if args.json:
        print(json.dumps({"rows": rows, "geometric_mean": mean}))
    elif ratios:
        print(f"geometric mean of pando / eager: {mean:.3f}")
    wrong = [row["model"] for row in rows if not close(row["loss_differences"])]
    if wrong:
        sys.exit(f"losses differ from PyTorch's by more than {LOSS_LIMITS}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
