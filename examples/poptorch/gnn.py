"""Message passing: which of two communities does a node of a random graph belong to?

Each node knows little about itself (one noisy feature); its neighbours tell. Graphs are padded to one size, as IPU
programs want it; messages are summed with `scatter_add`.
"""

import poptorch
import torch
from torch import nn

NODES, EDGES, FEATURES = 64, 640, 8


class Convolution(nn.Module):
    """The mean of the neighbours' features beside one's own (as GraphSAGE)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.neighbours = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, sources, targets):
        messages = x.index_select(0, sources)
        index = targets.unsqueeze(1).expand(-1, x.shape[1])
        total = torch.zeros_like(x).scatter_add(0, index, messages)
        degree = torch.zeros(x.shape[0]).scatter_add(0, targets, torch.ones(targets.shape[0]))
        return self.own(x) + self.neighbours(total / degree.clamp(min=1).unsqueeze(1))


class Network(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.first, self.second = Convolution(FEATURES, hidden), Convolution(hidden, hidden)
        self.head, self.loss = nn.Linear(hidden, 2), nn.CrossEntropyLoss()

    def forward(self, x, edges, labels=None):
        x, edges = x.squeeze(0), edges.squeeze(0)
        x = torch.relu(self.first(x, edges[0], edges[1]))
        scores = self.head(torch.relu(self.second(x, edges[0], edges[1])))
        return scores if labels is None else (scores, self.loss(scores, labels.squeeze(0)))


def graph(random):
    """Features, edges and communities, with a leading dimension of one graph."""
    labels = torch.randint(2, (NODES,), generator=random)
    x = 0.4 * torch.randn(NODES, FEATURES, generator=random)
    x[:, 0] += 0.3 * (2 * labels - 1)
    candidates = torch.randint(NODES, (2, 8 * EDGES), generator=random)
    same = labels[candidates[0]] == labels[candidates[1]]
    likely = torch.rand(8 * EDGES, generator=random) < torch.where(same, 0.9, 0.1)
    return x[None], candidates[:, likely][:, :EDGES].contiguous()[None], labels[None]


def main():
    torch.manual_seed(1)
    random = torch.Generator().manual_seed(2)
    network = Network()
    training = poptorch.trainingModel(network, poptorch.Options(), poptorch.optim.Adam(network.parameters(), lr=3e-3))
    for step in range(200):
        _, loss = training(*graph(random))
        if step % 20 == 0:
            print(f"step {step:3}  loss {float(loss):.4f}")
    training.detachFromDevice()

    network.eval()
    inference = poptorch.inferenceModel(network)
    right = 0.0
    for _ in range(20):
        x, edges, labels = graph(random)
        right += float((inference(x, edges).argmax(1) == labels[0]).float().mean()) / 20
    print(f"nodes in their community {right:.2%}")
    assert right > 0.9


if __name__ == "__main__":
    main()
