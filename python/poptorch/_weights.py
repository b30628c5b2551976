"""Weights of an executor: from the user's module to the device and back."""

import torch

from ._device import copy_into
from ._errors import createPoptorchError
from ._groups import Grouping, check, name_in_group
from ._host_model import plain_view, watch
from ._logging import logger


class Weights:
    """A part of `PoplarExecutor`."""

    def _group_replicas(self, tensor, comm_group_type, shards, variable_retrieval_mode):
        """Groups of replicas have values of their own of a tensor of the module."""
        if self._device is not None:
            raise createPoptorchError("replicaGrouping comes before the model is compiled")
        grouping = Grouping.of(comm_group_type, shards, variable_retrieval_mode, self._options.replication_factor)
        name = next(name for name, one in self._tensors_by_name().items() if one is tensor)
        check(name, tensor, grouping)
        self._groupings[name] = grouping

    def _tensors_by_name(self):
        """The module's parameters and buffers; shared ones by their first name."""
        model = self._user_model
        owner = model if isinstance(model, torch.nn.Module) else getattr(model, "__self__", None)
        if not isinstance(owner, torch.nn.Module):
            return {}
        return dict([*owner.named_parameters(), *owner.named_buffers()])

    def _on_device(self, name):
        """(name on the device, row of the host's tensor or None) of everything that stands for the tensor."""
        if name in self._groupings:
            grouping = self._groupings[name]
            return [(name_in_group(name, group), grouping.row_of(group)) for group in range(grouping.groups)]
        copies = self._options.replication_factor if name in self._executable.own_buffers else 1
        return [(name_in_group(name, replica), None) for replica in range(copies)]

    def _write(self, name):
        tensor = plain_view(self._names[name])
        if name in self._groupings:
            check(name, tensor, self._groupings[name])
        for there, row in self._on_device(name):
            self._device.write(there, tensor if row is None else tensor[row])

    def _read(self, name):
        tensor = plain_view(self._names[name])
        if name not in self._groupings:
            copy_into(tensor, self._device.read(name))
            return
        grouping = self._groupings[name]
        for row in range(grouping.rows):
            copy_into(tensor[row], self._device.read(name_in_group(name, grouping.group_of_row(row))))

    def _model_state(self):
        """The module's tensors by their names on the device."""
        state = {}
        for name, tensor in self._names.items():
            for there, row in self._on_device(name):
                state[there] = plain_view(tensor) if row is None else plain_view(tensor)[row]
        return state

    def _take_newer_weights(self):
        """Weights that are being trained elsewhere are copied over before a run."""
        if self._training:
            return
        for tensor in self._names.values():
            owners = tensor.__dict__.get("_poptorch_owners")
            for other in owners.executors() if owners is not None else ():
                if other is not self and other._training and other._is_newer(self):
                    self.copyWeightsToDevice()
                    return

    def _is_newer(self, other):
        """Has this executor's training gone on since `other` last looked?"""
        seen = other.__dict__.setdefault("_seen", {})
        version = (id(self), self._version)
        newer = seen.get(id(self)) != version and self._version > 0
        seen[id(self)] = version
        return newer

    def copyWeightsToHost(self):
        """Overwrites the user model's parameters and buffers by the device's."""
        self._require_compiled()
        self._copy_to_host()

    def copyWeightsToHostIfNeeded(self):
        """The same, if the device's are newer. Says whether they were."""
        if not self._host_is_stale or self._device is None:
            return False
        logger.debug("Implicit copyWeightsToHost()")
        self.copyWeightsToHost()
        return True

    def _copy_to_host(self):
        logger.debug("Writing weights from IPU to host")
        self._host_is_stale = False  # first: copying uses the tensors
        for name, tensor in self._names.items():
            if not self._shared.has(name, tensor):
                self._read(name)
        self._shared.end()

    def _show_host(self):
        """Somebody uses the user model's tensors: they have to have the newest elements, and keep them."""
        self.copyWeightsToHostIfNeeded()
        if self._shared:
            self._shared.end()

    def copyWeightsToDevice(self):
        """Overwrites the device's parameters and buffers by the user model's."""
        self._require_compiled()
        logger.debug("Writing weights from host to IPU memory")
        for owner in _owners_of(self._names.values()):
            if owner is not self:
                owner.copyWeightsToHostIfNeeded()
        if self._host_is_stale:
            self._shared.restore()
        self._host_is_stale = False
        self._refresh_names()
        for name, tensor in self._names.items():
            if not self._shared.has(name, tensor) and not self._share(name, tensor):
                self._write(name)

    def _share(self, name, tensor):
        """Lets the device train a weight where the host has it, if all replicas have the same. Says whether it does."""
        alone = self._training and self._on_device(name) == [(name, None)]
        return alone and self._shared.lend(name, tensor)

    def _refresh_names(self):
        """Buffers and parameters may have been replaced by other tensors of the same name."""
        if not isinstance(self._user_model, torch.nn.Module):
            return
        watch(self._user_model, self)
        current = self._tensors_by_name()
        self._names = {name: current.get(name, tensor) for name, tensor in self._names.items()}

    def copyNamedBuffersToDevice(self):
        """Overwrites the buffers of `updatableNamedBuffers` on the device."""
        self._require_compiled()
        names = self._options._Popart.options.get("updatableNamedBuffers")
        if not names:
            raise createPoptorchError("copyNamedBuffersToDevice needs poptorch.Options.updatableNamedBuffers")
        for name in names:
            self._write(name)

    def load_state_dict(self, state_dict, strict=True):
        """Loads into the user model, and onto the device if the model is on one."""
        result = self._user_model.load_state_dict(state_dict, strict)
        if self._attached:
            self.copyWeightsToDevice()
        return result


def _owners_of(tensors):
    found = []
    for tensor in tensors:
        owners = tensor.__dict__.get("_poptorch_owners")
        found += [owner for owner in (owners.executors() if owners is not None else ()) if owner not in found]
    return found
