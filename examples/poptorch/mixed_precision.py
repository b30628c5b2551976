"""f16 weights and activations, a scaled loss, stochastic rounding; the optimizer's state stays f32."""

import poptorch
import torch
from digits_cnn import Network, accuracy, digits


class HalfInput(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, label = self.data[index]
        return image.half(), label


def main():
    train_set, test_set = map(HalfInput, digits())
    network = Network().half()
    options = poptorch.Options().randomSeed(11)
    options.Precision.enableStochasticRounding(True)
    options.Precision.setPartialsType(torch.float)
    optimizer = poptorch.optim.AdamW(
        network.parameters(), lr=1e-3, eps=1e-5, loss_scaling=128.0, accum_type=torch.float16,
        first_order_momentum_accum_type=torch.float32, second_order_momentum_accum_type=torch.float32,
    )  # fmt: skip
    training = poptorch.trainingModel(network, options, optimizer)
    loader = poptorch.DataLoader(options, train_set, batch_size=32, shuffle=True)
    for epoch in range(15):
        losses = [float(training(images, labels)[1]) for images, labels in loader]
        print(f"epoch {epoch + 1:2}  loss {sum(losses) / len(losses):.4f}")
    training.detachFromDevice()
    assert next(network.parameters()).dtype == torch.half

    network.eval()
    inference_options = poptorch.Options()
    inference = poptorch.inferenceModel(network, inference_options)
    reached = accuracy(inference, poptorch.DataLoader(inference_options, test_set, batch_size=36))
    print(f"test accuracy {reached:.2%}")
    assert reached > 0.97


if __name__ == "__main__":
    main()
