"""Which samples a process reads, and how batches of a user's sampler are grouped into one call's worth."""

import torch


class ProcessSampler(torch.utils.data.Sampler):
    """The indices of one of several processes; all processes draw the same order, so that shares never overlap.

    With `shuffle`, what one epoch leaves over comes first in the next.
    """

    def __init__(self, length, process, processes, share, shuffle, seed):
        self._length, self._process, self._processes = length, process, processes
        self._share, self._shuffle = share, shuffle
        self._generator = torch.Generator()
        if shuffle:
            self._generator.manual_seed(seed)
        self._left_over = torch.empty(0, dtype=torch.int64)

    def __len__(self):
        return len(range(*self._range()))

    def _range(self):
        start = min(self._process * self._share, self._length)
        return start, min(start + self._share, self._length)

    def __iter__(self):
        start, end = self._range()
        if not self._shuffle:
            return iter(range(start, end))
        return iter(self._epoch_order()[start:end].tolist())

    def _epoch_order(self):
        fresh = torch.ones(self._length, dtype=torch.bool)
        fresh[self._left_over] = False
        fresh = fresh.nonzero().flatten()
        order = torch.cat([self._left_over, fresh[torch.randperm(len(fresh), generator=self._generator)]])
        used = self._share * self._processes
        order, self._left_over = order[:used], order[used:]
        return order[torch.randperm(len(order), generator=self._generator)]


class GroupedBatches(torch.utils.data.Sampler):
    """Groups of `size` batches of a batch sampler: a list of lists of indices."""

    def __init__(self, batch_sampler, size, drop_last):
        self._batches, self._size, self._drop_last = batch_sampler, size, drop_last

    def __len__(self):
        count = len(self._batches)
        return count // self._size if self._drop_last else -(-count // self._size)

    def __iter__(self):
        group = []
        for batch in self._batches:
            group.append(list(batch))
            if len(group) == self._size:
                yield group
                group = []
        if group and not self._drop_last:
            yield group


class GroupedDataset(torch.utils.data.Dataset):
    """A map-style dataset that takes a list of indices for a list of samples."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, indices):
        return [self.dataset[index] for index in indices]


class GroupedCollate:
    """Collates each batch by itself, then joins them along the first dimension."""

    def __init__(self, collate):
        self._collate = collate

    def __call__(self, batches):
        return concatenate([self._collate(batch) for batch in batches])


def concatenate(structures):
    """Joins structures of tensors along their first dimension."""
    from ._arguments import zip_structures

    return structures[0] if len(structures) == 1 else zip_structures(torch.cat, structures)
