"""Checks of how a model is spread over IPUs, once its blocks are known."""

from ._errors import createPoptorchError
from ._hardware import MAX_IPUS, claims_hardware, too_many


def check(places, options, plan, training):
    """Raises a poptorch.Error if the strategy or the system does not allow it."""
    if claims_hardware() and options.ipu_model is not True and options.offline_ipu_version is None:
        _check_system((1 + max((place.ipu for place in places), default=0)) * plan.replicas, options)
    if type(options._execution_strategy).__name__ == "PipelinedExecution":
        _check_pipeline(len({place.stage for place in places}), plan, training)


def _check_pipeline(stages, plan, training):
    if stages == 1:
        return
    if training and plan.accumulation < 2 * stages - 1:
        raise createPoptorchError(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of pipeline "
            f"stages ({2 * stages - 1}) when using poptorch.PipelinedExecution. Please note that a model with {stages} "
            f"pipeline stages in PopTorch will have an additional {stages - 1} stages when training."
        )
    if not training and plan.iterations < stages:
        raise createPoptorchError(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
            f"({stages}) when using poptorch.PipelinedExecution."
        )


def _check_system(ipus, options):
    if ipus > MAX_IPUS:
        raise too_many(ipus)
    rounded = 1 << (ipus - 1).bit_length()
    if rounded != ipus and not options.auto_round_num_ipus:
        raise createPoptorchError(
            f"Unsupported number of IPUs: The model specifies the use of {ipus} IPUs, however PopTorch must reserve a "
            f"minimum of {rounded} in order to allow the model to run, because PopTorch must reserve a power of 2 or "
            f"maximum of {MAX_IPUS} IPUs per process. Please reconfigure your model to use a different number of IPUs "
            "or set poptorch.Options().autoRoundNumIPUs(True)."
        )
