"""A DCGAN on pictures of one bright blob: two training models that share the networks, trained in turn."""

import argparse

import poptorch
import torch
from torch import nn

NOISE, WIDTH, SIZE = 64, 32, 32


def generator_network():
    up = lambda i, o, *at: [nn.ConvTranspose2d(i, o, 4, *at, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
    return nn.Sequential(
        *up(NOISE, 4 * WIDTH, 1, 0), *up(4 * WIDTH, 2 * WIDTH, 2, 1), *up(2 * WIDTH, WIDTH, 2, 1),
        nn.ConvTranspose2d(WIDTH, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip


def discriminator_network():
    down = lambda i, o: [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(
        nn.Conv2d(1, WIDTH, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True),
        *down(WIDTH, 2 * WIDTH), *down(2 * WIDTH, 4 * WIDTH), nn.Conv2d(4 * WIDTH, 1, 4, 1, 0, bias=False),
    )  # fmt: skip


def initialised(network):
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(module.weight, 0.0, 0.02)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.02)
    return network


class Judged(nn.Module):
    """The discriminator's step. Real and generated pictures are normalised apart, as the generator's step has them."""

    def __init__(self, discriminator):
        super().__init__()
        self.discriminator, self.loss = discriminator, nn.BCEWithLogitsLoss()

    def forward(self, real, generated):
        real, generated = self.discriminator(real), self.discriminator(generated)
        loss = self.loss(real, torch.ones_like(real)) + self.loss(generated, torch.zeros_like(generated))
        # Of several losses the final one must be marked.
        return torch.cat([real, generated]).flatten(), poptorch.identity_loss(loss, reduction="none")


class Forged(nn.Module):
    """The generator's step: its pictures should pass as real."""

    def __init__(self, generator, discriminator):
        super().__init__()
        self.generator, self.discriminator, self.loss = generator, discriminator, nn.BCEWithLogitsLoss()

    def forward(self, noise):
        pictures = self.generator(noise)
        scores = self.discriminator(pictures).flatten()
        return pictures, self.loss(scores, torch.ones_like(scores))


def blobs(count, random):
    place = torch.arange(SIZE).float()
    centre = SIZE / 4 + SIZE / 2 * torch.rand(count, 2, 1, generator=random)
    bell = torch.exp(-((place - centre) ** 2) / 18)
    return (2 * bell[:, 0, :, None] * bell[:, 1, None, :] - 1).unsqueeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(2)
    random = torch.Generator().manual_seed(3)
    generator, discriminator = initialised(generator_network()), initialised(discriminator_network())
    adam = lambda network: poptorch.optim.Adam(network.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judge = poptorch.trainingModel(Judged(discriminator), poptorch.Options(), adam(discriminator))
    forge_options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    # Only the generator's weights are the optimizer's: the discriminator stays as it is.
    forge = poptorch.trainingModel(Forged(generator, discriminator), forge_options, adam(generator))

    batch = 32
    pictures = torch.randn(batch, 1, SIZE, SIZE, generator=random)
    for step in range(args.steps):
        scores, judged = judge(blobs(batch, random), pictures)
        judge.copyWeightsToHost()
        if step:
            forge.copyWeightsToDevice()
        pictures, forged = forge(torch.randn(batch, NOISE, 1, 1, generator=random))
        forge.copyWeightsToHost()
        judge.copyWeightsToDevice()
        if step % 25 == 0 or step == args.steps - 1:
            print(f"step {step:3}  discriminator {float(judged):.4f}  generator {float(forged):.4f}")
    # A bright spot on dark ground, as in the real pictures: about a tenth of their pixels are bright.
    bright = float((pictures > 0).float().mean())
    print(f"bright pixels {bright:.1%}")
    assert torch.isfinite(pictures).all() and torch.isfinite(judged) and torch.isfinite(forged)
    assert args.steps < 150 or 0.005 < bright < 0.3, "generated pictures should be mostly dark with a bright spot"


if __name__ == "__main__":
    main()
