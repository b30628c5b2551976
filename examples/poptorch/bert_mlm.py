"""A tiny BERT learns to fill in masked tokens of a made-up language, beside PyTorch with the same seed and data.

Sentences are arithmetic progressions modulo the vocabulary, so that the tokens around a mask decide it.
"""

import argparse
import copy

import poptorch
import torch
from torch import nn

VOCABULARY, LENGTH, MASK, IGNORED = 67, 24, 0, -100


class Bert(nn.Module):
    def __init__(self, width=128, heads=2, layers=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        # No dropout: the losses are compared step by step.
        layer = lambda: nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.ModuleList(layer() for _ in range(layers))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))
        self.loss = nn.CrossEntropyLoss(ignore_index=IGNORED)

    def forward(self, tokens, labels):
        x = self.norm(self.tokens(tokens) + self.places(torch.arange(LENGTH, device=tokens.device)))
        for layer in self.layers:
            x = layer(x)
        # The word embeddings are the output layer's weights, too.
        scores = self.transform(x) @ self.tokens.weight.t() + self.bias
        return scores, self.loss(scores.flatten(0, 1), labels.flatten())


def batch(size, generator):
    start = torch.randint(1, VOCABULARY, (size, 1), generator=generator)
    step = torch.randint(1, 3, (size, 1), generator=generator)
    sentence = 1 + (start + step * torch.arange(LENGTH)) % (VOCABULARY - 1)
    masked = torch.rand(size, LENGTH, generator=generator) < 0.15
    return torch.where(masked, MASK, sentence), torch.where(masked, sentence, IGNORED)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(5)
    network = Bert()
    reference = copy.deepcopy(network)
    reference_optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-3, weight_decay=0.01)
    optimizer = poptorch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    training = poptorch.trainingModel(network, poptorch.Options(), optimizer)

    generator, furthest = torch.Generator().manual_seed(6), 0.0
    for step in range(args.steps):
        tokens, labels = batch(32, generator)
        loss = float(training(tokens, labels)[1])
        expected = reference(tokens, labels)[1]
        reference_optimizer.zero_grad()
        expected.backward()
        reference_optimizer.step()
        first = loss if step == 0 else first
        furthest = max(furthest, abs(loss - float(expected)) / float(expected))
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step:3}  loss {loss:.5f}  PyTorch {float(expected):.5f}")
    print(f"losses differ by at most {furthest:.2e}")
    assert furthest < 0.01, "losses should follow PyTorch's within 1 %"
    assert args.steps < 200 or loss < first / 2, "the loss should have fallen"


if __name__ == "__main__":
    main()
