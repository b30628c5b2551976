"""Goal: loaders yield the samples of a call, whoever assembles them. Method: numbered samples, counted."""

import pytest

torch = pytest.importorskip("torch")
poptorch = pytest.importorskip("poptorch")

MODES = list(poptorch.DataLoaderMode)


class Numbers(torch.utils.data.Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.full((2,), float(index)), {"label": torch.tensor(index)}


class Broken(Numbers):
    def __getitem__(self, index):
        raise ValueError("no such sample")


class BreaksLater(Numbers):
    def __getitem__(self, index):
        if index == 3:
            raise ValueError("sample 3 is bad")
        return super().__getitem__(index)


def labels(loader):
    return [batch[1]["label"].tolist() for batch in loader]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_has_the_samples_of_all_micro_batches(mode, workers):
    options = poptorch.Options().deviceIterations(2).replicationFactor(3)
    loader = poptorch.DataLoader(options, Numbers(40), batch_size=2, num_workers=workers, mode=mode)
    assert loader.combinedBatchSize == 12 and len(loader) == 3
    for _ in range(2):
        assert labels(loader) == [list(range(12 * i, 12 * i + 12)) for i in range(3)]
    loader.terminate()


@pytest.mark.parametrize("mode", MODES)
def test_a_short_last_batch(mode):
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(10), batch_size=4, drop_last=False, mode=mode)
    assert [len(part) for part in labels(loader)] == [4, 4, 2]
    loader.terminate()


def test_an_interrupted_epoch_starts_over():
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(8), batch_size=2, mode=poptorch.DataLoaderMode.Async)
    for number, _ in enumerate(loader):
        if number == 1:
            break
    assert labels(loader) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    loader.terminate()


def test_processes_share_without_overlap_and_use_all_in_time():
    seen = [set(), set()]
    for epoch_set in seen:
        for process in range(3):
            options = poptorch.Options().randomSeed(1)
            options.Distributed.configureProcessId(process, 3)
            loader = poptorch.DataLoader(options, Numbers(20), batch_size=2, shuffle=True)
            first = [index for batch in labels(loader) for index in batch]
            second = [index for batch in labels(loader) for index in batch]
            assert len(first) == 6 and not epoch_set & {("first", i) for i in first}
            epoch_set.update(("first", i) for i in first)
            epoch_set.update(("any", i) for i in first + second)
    assert seen[0] == seen[1]
    assert {i for kind, i in seen[0] if kind == "any"} == set(range(20))


def test_errors_of_the_dataset_arrive():
    with pytest.raises(poptorch.Error, match="failed to start"):
        poptorch.AsynchronousDataAccessor(Broken(3))
    accessor = poptorch.AsynchronousDataAccessor(BreaksLater(5))
    with pytest.raises(poptorch.Error, match="sample 3 is bad"):
        for _ in accessor:
            pass
    accessor.terminate()


def test_the_worker_ends_with_its_accessor():
    accessor = poptorch.AsynchronousDataAccessor(Numbers(5))
    process = accessor._worker._process
    assert process.is_alive()
    del accessor
    process.join(10)
    assert not process.is_alive()
