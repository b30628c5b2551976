"""An LSTM tells rising from falling from oscillating sequences under noise."""

import poptorch
import torch
from torch import nn

LENGTH, CLASSES = 32, 3


class Classifier(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, CLASSES)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, sequences, labels=None):
        states, _ = self.lstm(sequences)
        scores = self.head(states[:, -1])
        return scores if labels is None else (scores, self.loss(scores, labels))


def sequences(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    time = torch.linspace(0, 1, LENGTH)
    phase = torch.rand(count, 1, generator=generator)
    shapes = torch.stack([time.expand(count, -1), -time.expand(count, -1), torch.sin(18 * (time + phase))], 1)
    values = shapes[torch.arange(count), labels] + 0.3 * torch.randn(count, LENGTH, generator=generator)
    return torch.utils.data.TensorDataset(values.unsqueeze(2), labels)


def main():
    torch.manual_seed(3)
    options = poptorch.Options()
    loader = poptorch.DataLoader(options, sequences(2048, 1), batch_size=64, shuffle=True)
    network = Classifier()
    training = poptorch.trainingModel(network, options, poptorch.optim.Adam(network.parameters(), lr=5e-3))
    for epoch in range(8):
        losses = [float(training(*batch)[1]) for batch in loader]
        print(f"epoch {epoch + 1}  loss {sum(losses) / len(losses):.4f}")
    training.detachFromDevice()

    network.eval()
    inference = poptorch.inferenceModel(network)
    values, labels = sequences(512, 2).tensors
    reached = float((inference(values).argmax(1) == labels).float().mean())
    print(f"test accuracy {reached:.2%}")
    assert reached > 0.95


if __name__ == "__main__":
    main()
