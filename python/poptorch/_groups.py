"""Weights of which groups of replicas have their own values (`replicaGrouping`).

The host's tensor has a leading dimension: a row per group, or per replica if all replicas' values come back
(assumption: a group then starts from the row of its first replica). On the device group 0's tensor has the weight's
name, group 2's the name with `#2` behind it.
"""

import contextlib
from dataclasses import dataclass

import torch

from ._errors import createPoptorchError
from .enums import CommGroupType, VariableRetrievalMode


@dataclass(frozen=True)
class Grouping:
    """How replicas share a weight."""

    kind: CommGroupType
    size: int  # replicas in a group
    replicas: int
    all_come_back: bool

    @classmethod
    def of(cls, kind, shards, mode, replicas):
        """From the arguments of `replicaGrouping`."""
        assert isinstance(kind, CommGroupType), f"replicaGrouping takes a poptorch.CommGroupType, not {kind!r}"
        assert isinstance(mode, VariableRetrievalMode), (
            f"replicaGrouping takes a poptorch.VariableRetrievalMode, not {mode!r}"
        )
        size = {CommGroupType.All: replicas, CommGroupType.NoGrouping: 1}.get(kind, shards)
        if not isinstance(size, int) or size < 1 or replicas % size:
            raise createPoptorchError(
                f"replicaGrouping: groups of {size} replicas are no division of {replicas} replicas (replicationFactor)"
            )
        return cls(kind, size, replicas, mode is VariableRetrievalMode.AllReplicas)

    @property
    def groups(self):
        """How many there are."""
        return self.replicas // self.size

    @property
    def rows(self):
        """The leading dimension of the host's tensor."""
        return self.replicas if self.all_come_back else self.groups

    def group_of(self, replica):
        """Consecutive groups are runs of neighbours; orthogonal ones take every n-th replica."""
        return replica % self.groups if self.kind is CommGroupType.Orthogonal else replica // self.size

    def group_of_row(self, row):
        """Whose value a row of the host's tensor is."""
        return self.group_of(row) if self.all_come_back else row

    def row_of(self, group):
        """The row that a group starts from."""
        return next(row for row in range(self.rows) if self.group_of_row(row) == group)


def name_in_group(name, group):
    """The name on the device."""
    return f"{name}#{group}" if group else name


def check(name, tensor, grouping):
    """Raises a poptorch.Error unless the host's tensor has the rows that the grouping asks for."""
    if tensor.shape[0] != grouping.rows:
        of = "replicas" if grouping.all_come_back else "groups of replicas"
        raise createPoptorchError(
            f"replicaGrouping: the first dimension of {name} is {tensor.shape[0]}; it must be the number of {of}, "
            f"{grouping.rows}"
        )


@contextlib.contextmanager
def as_seen_by_replicas(owner, groupings):
    """Inside, the module's grouped tensors are as large as one replica sees them. Yields what stands for what:
    id of the replacement -> the tensor."""
    replaced, undo = {}, []
    stand_ins = {}
    for module in owner.modules() if owner is not None and groupings else ():
        for registered in (module._parameters, module._buffers):
            for name, tensor in list(registered.items()):
                if tensor is not None and id(tensor) in groupings:
                    stand_in = stand_ins.setdefault(id(tensor), _one_row(tensor))
                    replaced[id(stand_in)] = tensor
                    undo.append((registered, name, tensor))
                    registered[name] = stand_in
    try:
        yield replaced
    finally:
        for registered, name, tensor in undo:
            registered[name] = tensor


def _one_row(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        row = torch.empty(tensor.shape[1:], dtype=tensor.dtype)
    return torch.nn.Parameter(row, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else row
