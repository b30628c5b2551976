"""A small CNN on scikit-learn's handwritten digits (1,797 images of 8x8)."""

import argparse

import poptorch
import torch
from sklearn.datasets import load_digits
from torch import nn


class Network(nn.Module):
    """Training models return the loss, too: PopTorch differentiates the last one."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
        )
        self.loss = nn.CrossEntropyLoss()

    def forward(self, images, labels=None):
        scores = self.classifier(self.features(images))
        return scores if labels is None else (scores, self.loss(scores, labels))


def digits():
    """Training and test set: images scaled to 0..1, labels."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    whole = torch.utils.data.TensorDataset(images, torch.tensor(data.target))
    return torch.utils.data.random_split(whole, [1437, 360], generator=torch.Generator().manual_seed(1))


def accuracy(model, loader):
    right = total = 0
    for images, labels in loader:
        right += int((model(images).argmax(1) == labels).sum())
        total += len(labels)
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    train_set, test_set = digits()

    options = poptorch.Options().randomSeed(7)
    options.deviceIterations(4)
    loader = poptorch.DataLoader(options, train_set, batch_size=16, shuffle=True)
    network = Network()
    training = poptorch.trainingModel(network, options, poptorch.optim.AdamW(network.parameters(), lr=2e-3))
    network.train()
    for epoch in range(args.epochs):
        losses = [float(training(images, labels)[1].mean()) for images, labels in loader]
        print(f"epoch {epoch + 1:2}  loss {sum(losses) / len(losses):.4f}")
    training.detachFromDevice()

    network.eval()
    inference_options = poptorch.Options()
    inference = poptorch.inferenceModel(network, inference_options)
    reached = accuracy(inference, poptorch.DataLoader(inference_options, test_set, batch_size=36))
    print(f"test accuracy {reached:.2%}")
    assert reached > 0.97, "the network should recognise more than 97 % of the digits"


if __name__ == "__main__":
    main()
