"""The CNN of digits_cnn.py in four blocks over four IPUs, and what an IPU-M2000 would take for it.

The blocks decide the schedule that is predicted; the numbers are those of the model as a whole.
"""

import poptorch
import torch
from digits_cnn import Network, accuracy, digits

EPOCHS = 12


def pipelined(network):
    """Each block begins at a layer; what comes before the first belongs to IPU 0."""
    network.features[0] = poptorch.BeginBlock(network.features[0], "first convolution", ipu_id=0)
    network.features[3] = poptorch.BeginBlock(network.features[3], "second convolution", ipu_id=1)
    network.classifier[1] = poptorch.BeginBlock(network.classifier[1], "hidden layer", ipu_id=2)
    network.classifier[4] = poptorch.BeginBlock(network.classifier[4], "scores and loss", ipu_id=3)
    return network


def main():
    train_set, test_set = digits()
    options = poptorch.Options().randomSeed(7)
    # Training has seven stages: four forward, three backward; there must be a micro-batch for each.
    options.Training.gradientAccumulation(8)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    loader = poptorch.DataLoader(options, train_set, batch_size=4, shuffle=True)
    network = pipelined(Network())
    optimizer = poptorch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, use_combined_accum=False)
    training = poptorch.trainingModel(network, options, optimizer)
    for epoch in range(EPOCHS):
        if epoch == EPOCHS - 4:
            for group in optimizer.param_groups:
                group["lr"] = 0.01
            training.setOptimizer(optimizer)
        losses = [float(training(images, labels)[1].mean()) for images, labels in loader]
        print(f"epoch {epoch + 1:2}  loss {sum(losses) / len(losses):.4f}")
    training.detachFromDevice()

    network.eval()
    inference_options = poptorch.Options().deviceIterations(4)
    inference_options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    inference = poptorch.inferenceModel(network, inference_options)
    with torch.no_grad():
        reached = accuracy(inference, poptorch.DataLoader(inference_options, test_set, batch_size=9))
    print(f"test accuracy {reached:.2%}")
    assert reached > 0.97


if __name__ == "__main__":
    main()
