"""Which of the losses in a model training starts from."""

from pando import _pando

from ._errors import createPoptorchError


def final_loss(graph, losses):
    """The one loss that all others flow into; None of them may be beside it."""
    if not losses:
        raise createPoptorchError(
            "Couldn't find a loss in graph: use a loss function of torch.nn or poptorch.identity_loss"
        )
    final = losses[-1]
    others = [loss for loss in losses[:-1] if loss.id != final.id]
    if others:
        seed = graph.full(final.dtype, final.shape, 1.0)
        flows = _pando.gradients(graph.native, [final.id], [seed.id], [loss.id for loss in others])
        if any(gradient is None for gradient in flows):
            raise createPoptorchError(
                "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
                "poptorch.identity_loss."
            )
    return final
