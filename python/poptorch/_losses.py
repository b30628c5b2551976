"""Which of the losses in a model training starts from."""

from ._errors import createPoptorchError


def final_loss(captured, losses, wraps):
    """The one loss that all others flow into. `wraps`: the last one may be another one's value under a new name."""
    if not losses:
        raise createPoptorchError(
            "Couldn't find a loss in graph: use a loss function of torch.nn or poptorch.identity_loss"
        )
    final, others = losses[-1], losses[:-1]
    seed = captured.emitter.full(final.dtype, final.shape, 1.0)
    same = [loss for loss in others if loss.id == final.id]
    others = [loss for loss in others if loss.id != final.id]
    flows = captured.gradients([final], [seed], others) if others else []
    if any(gradient is None for gradient in flows) or (same and not wraps):
        raise createPoptorchError(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
            "poptorch.identity_loss."
        )
    return final
