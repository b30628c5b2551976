"""`trainingModel`, `inferenceModel` and `load`: where executors come from."""

import torch

from ._errors import createPoptorchError
from ._export import File
from ._strategies import PipelinedExecution
from .enums import ConnectionType
from ._executor import Destroy, PoplarExecutor
from .options import Options


def trainingModel(model, options=None, optimizer=None):
    """Wraps a model whose call runs forward pass, backward pass and weight update."""
    model = _user_model(model)
    options = _options(options)
    if isinstance(getattr(model, "__dict__", {}).get("destroy"), Destroy):
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return PoplarExecutor(model, options, training=True, optimizer=optimizer)


def inferenceModel(model, options=None):
    """Wraps a model, or any callable, whose call runs the forward pass."""
    options = _options(options)
    if options.Training.gradient_accumulation != 1:
        message = (
            "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) "
            "when running a poptorch.inferenceModel()."
        )
        if isinstance(options._execution_strategy, PipelinedExecution):
            message += (
                " Use poptorch.Options().deviceIterations to process a sufficient number of batches each run for "
                "pipelined execution instead."
            )
        raise createPoptorchError(message)
    return PoplarExecutor(_user_model(model), options, training=False)


def load(filename, edit_opts_fn=None):
    """The executor that `compileAndExport` or `save` wrote to the file, with its model.

    `edit_opts_fn(options)` may change the options first. The file holds pickles: load only what you trust.
    """
    file = File(filename)
    model, optimizer = file.model()
    options = file.options()
    if options.connection_type is ConnectionType.Never:
        options.connectionType(ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    wrapped = trainingModel(model, options, optimizer) if file.training else inferenceModel(model, options)
    wrapped._load(file)
    return wrapped


def _options(options):
    if options is None:
        options = Options()
    options._freeze()
    return options


def _user_model(model):
    return model.model if isinstance(model, PoplarExecutor) else model
