"""`poptorch.Options` with what the launcher decides already set, and not to be changed."""

import popdist

import poptorch

__all__ = ["Options"]


def _blocked(name):
    def setter(self, *args, **kwargs):  # noqa: ARG001
        raise RuntimeError(f"Cannot call `{name}` with popdist.poptorch.Options: the launcher decides it")

    return setter


class _DistributedOptions(poptorch.options._DistributedOptions):
    disable = _blocked("Distributed.disable")
    setEnvVarNames = _blocked("Distributed.setEnvVarNames")
    configureProcessId = _blocked("Distributed.configureProcessId")


class Options(poptorch.Options):
    """Options of one process among those of the launcher."""

    def __init__(self, ipus_per_replica=None):
        super().__init__()
        self._ipus_per_replica = ipus_per_replica or popdist.getNumIpusPerReplica()
        super().replicationFactor(popdist.getNumLocalReplicas())
        self.Distributed.configureProcessId(popdist.getInstanceIndex(), popdist.getNumInstances())
        self.Distributed.__class__ = _DistributedOptions

    useIpuId = _blocked("useIpuId")
    replicationFactor = _blocked("replicationFactor")
