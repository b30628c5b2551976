"""`poptorch.DataLoader`: PyTorch's, with batches of the size that one call of an executor takes."""

import torch

from ._data_accessor import AsynchronousDataAccessor
from ._logging import logger
from ._samplers import GroupedBatches, GroupedCollate, GroupedDataset, ProcessSampler
from .enums import DataLoaderMode


class DataLoader(torch.utils.data.DataLoader):
    """`batch_size` is a micro-batch's; a step yields deviceIterations x replicas x gradientAccumulation of them."""

    def __init__(self, options, dataset, batch_size=1, shuffle=None, num_workers=0, drop_last=True,
                 persistent_workers=None, auto_distributed_partitioning=True, mode=DataLoaderMode.Sync,
                 async_options=None, rebatched_worker_size=None, batch_sampler=None, **kwargs):
        assert isinstance(mode, DataLoaderMode), f"mode must be a poptorch.DataLoaderMode, not {mode!r}"
        assert mode is not DataLoaderMode.Sync or async_options is None, "async_options need an asynchronous mode"
        options._freeze()
        self._accessor = None
        self._options = options
        self._factor = (options.device_iterations * options.replication_factor // options.input_group_size
                        * options.Training.gradient_accumulation)
        self._combined_batch_size = None if batch_size is None else batch_size * self._factor
        rebatch = mode is DataLoaderMode.AsyncRebatched and batch_sampler is None
        if persistent_workers is None:
            persistent_workers = num_workers > 0
        kwargs.update(num_workers=num_workers, persistent_workers=persistent_workers)
        self.rebatched_drop_last = drop_last
        if batch_sampler is not None:
            dataset = self._group(kwargs, dataset, batch_sampler, batch_size, shuffle, drop_last)
        else:
            self._batch(kwargs, dataset, batch_size, shuffle, drop_last, auto_distributed_partitioning)
            if rebatch:
                assert batch_size is not None, "AsyncRebatched needs a batch_size"
                kwargs.update(batch_size=rebatched_worker_size or batch_size, drop_last=False)
        self._rebatched_size = self._combined_batch_size if rebatch else None
        super().__init__(dataset, **kwargs)
        if mode is not DataLoaderMode.Sync:
            self._accessor = AsynchronousDataAccessor(
                self, rebatched_size=self._rebatched_size, **(async_options or {})
            )

    def _group(self, kwargs, dataset, batch_sampler, batch_size, shuffle, drop_last):
        """Whole batches of the user's sampler, `_factor` at a time."""
        assert batch_size in (1, None) and not shuffle, "batch_sampler excludes batch_size and shuffle"
        assert not isinstance(dataset, torch.utils.data.IterableDataset), "batch_sampler needs a map-style dataset"
        self._combined_batch_size = None
        collate = kwargs.get("collate_fn") or torch.utils.data.default_collate
        kwargs.update(batch_sampler=GroupedBatches(batch_sampler, self._factor, drop_last),
                      collate_fn=GroupedCollate(collate))
        return GroupedDataset(dataset)

    def _batch(self, kwargs, dataset, batch_size, shuffle, drop_last, partition):
        if batch_size is None:
            kwargs.update(batch_size=None, drop_last=False)
        else:
            kwargs.update(batch_size=self._combined_batch_size, drop_last=drop_last)
        iterable = isinstance(dataset, torch.utils.data.IterableDataset)
        processes = self._options.Distributed.numProcesses
        if processes > 1 and partition:
            assert not iterable, "An IterableDataset cannot be partitioned: set auto_distributed_partitioning=False"
            assert "sampler" not in kwargs, "A sampler excludes auto_distributed_partitioning"
            kwargs["sampler"] = self._process_sampler(dataset, shuffle, drop_last)
        elif not iterable:
            kwargs["shuffle"] = bool(shuffle) if "sampler" not in kwargs else None
        else:
            assert not shuffle, "An IterableDataset cannot be shuffled by the loader"
        self._warn_about_short_batch(dataset, batch_size, drop_last)

    def _process_sampler(self, dataset, shuffle, drop_last):
        options = self._options
        processes = options.Distributed.numProcesses
        assert not shuffle or options.random_seed is not None, (
            "Shuffling over several processes needs the same randomSeed in all of them"
        )
        step = (self._combined_batch_size or 1) * processes
        if drop_last:
            share = len(dataset) // step * (self._combined_batch_size or 1)
        else:
            share = -(-len(dataset) // processes)
        return ProcessSampler(len(dataset), options.Distributed.processId, processes, share, shuffle,
                              options.random_seed)

    def _warn_about_short_batch(self, dataset, batch_size, drop_last):
        if drop_last or batch_size is None or not hasattr(dataset, "__len__"):
            return
        left_over = len(dataset) % self._combined_batch_size
        if left_over:
            logger.warning("The last batch has %d samples instead of %d: a compiled model takes one size only. "
                           "Use drop_last=True", left_over, self._combined_batch_size)

    @property
    def combinedBatchSize(self):
        """Samples in one step."""
        return self._combined_batch_size

    @property
    def options(self):
        """The options the sizes come from."""
        return self._options

    def terminate(self):
        """Stops the worker process of the asynchronous modes."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __len__(self):
        if not hasattr(type(self.dataset), "__len__"):
            raise TypeError(f"'{type(self.dataset).__name__}' has no len()")
        if self._rebatched_size is None:
            return super().__len__()
        samples = len(self.dataset) if self._is_iterable() else len(self.sampler)
        size = self._rebatched_size
        return samples // size if self.rebatched_drop_last else -(-samples // size)

    def _is_iterable(self):
        return isinstance(self.dataset, torch.utils.data.IterableDataset)

    def __iter__(self):
        if self._accessor is not None:
            return iter(self._accessor)
        return super().__iter__()

    def __getstate__(self):
        return {**self.__dict__, "_accessor": None}
