"""CTC beam search: the most probable label sequences of a frame-wise classifier.

Made of PyTorch operators on tensors of fixed sizes, so that it runs by itself and inside a compiled model. A beam
is a label sequence with two probabilities: of the paths that end in a blank, and of those that do not.
"""

import torch

_NEVER = -1e30  # a log probability


def ctc_beam_search_decoder(probs, lengths, blank=0, beam_width=100, top_paths=1):
    """Log probabilities [time, batch, classes] and lengths [batch] give log probabilities of the best paths
    [batch, top_paths], their lengths [batch, top_paths] and labels [batch, top_paths, time]."""
    assert probs.dim() == 3 and lengths.dim() == 1, "probs must have three dimensions and lengths one"
    assert top_paths <= beam_width, f"top_paths ({top_paths}) must be at most beam_width ({beam_width})"
    time, batch, classes = probs.shape
    beams = _Beams(batch, beam_width, time)
    probs = probs.float()
    for step in range(time):
        beams = beams.step(probs[step], step < lengths, blank, classes)
    total = torch.logaddexp(beams.blank, beams.label)
    best, order = torch.topk(total, top_paths, dim=1)
    labels = torch.gather(beams.labels, 1, order.unsqueeze(-1).expand(batch, top_paths, time))
    return best.to(probs.dtype), torch.gather(beams.lengths, 1, order), labels


class _Beams:
    """`labels` [batch, beam, time] (padded with -1), `lengths`, and the two log probabilities [batch, beam]."""

    def __init__(self, batch, width, time):
        self.labels = torch.full((batch, width, time), -1, dtype=torch.int32)
        self.lengths = torch.zeros((batch, width), dtype=torch.int32)
        first = torch.arange(width).expand(batch, width) == 0
        self.blank = torch.where(first, 0.0, _NEVER)
        self.label = torch.full((batch, width), _NEVER)

    def step(self, frame, active, blank, classes):
        """The beams after one more frame [batch, classes]; batches that have ended stay as they are."""
        batch, width = self.blank.shape
        last = self._last()
        stay_blank = torch.logaddexp(self.blank, self.label) + frame[:, blank : blank + 1]
        repeated = torch.gather(frame, 1, last.clamp(min=0).long())
        stay_label = torch.where(last >= 0, self.label + repeated, _NEVER)
        grown = self._grown(frame, last, blank, classes)
        stay_label, grown = self._merged(stay_label, grown, last, classes)
        candidates = torch.cat([torch.logaddexp(stay_blank, stay_label), grown.reshape(batch, width * classes)], 1)
        _, chosen = torch.topk(candidates, width, dim=1)
        new = self._chosen(chosen, stay_blank, stay_label, grown, classes)
        return self._where(active, new)

    def _last(self):
        position = (self.lengths - 1).clamp(min=0).long().unsqueeze(-1)
        return torch.where(self.lengths > 0, torch.gather(self.labels, 2, position).squeeze(-1), -1)

    def _grown(self, frame, last, blank, classes):
        """Log probabilities [batch, beam, classes] of beams with one more label."""
        labels = torch.arange(classes)
        both = torch.logaddexp(self.blank, self.label).unsqueeze(-1)
        repeats = labels == last.unsqueeze(-1)
        before = torch.where(repeats, self.blank.unsqueeze(-1), both)
        return torch.where(labels == blank, _NEVER, before + frame.unsqueeze(1))

    def _merged(self, stay, grown, last, classes):
        """A beam that grows into another existing beam adds to that one's probability."""
        longer = self.lengths.unsqueeze(2) == self.lengths.unsqueeze(1) + 1  # [batch, longer, shorter]
        steps = torch.arange(self.labels.shape[2])
        inside = steps < self.lengths.unsqueeze(1).unsqueeze(-1)
        same = self.labels.unsqueeze(2) == self.labels.unsqueeze(1)
        prefix = longer & (same | ~inside).all(-1)
        alive = torch.logaddexp(self.blank, self.label) > _NEVER / 2
        prefix = prefix & alive.unsqueeze(2) & alive.unsqueeze(1)
        into = torch.gather(grown, 2, last.clamp(min=0).long().unsqueeze(1).expand(-1, grown.shape[1], -1))
        added = torch.where(prefix, into.transpose(1, 2), _NEVER).logsumexp(2)
        is_last = torch.arange(classes) == last.unsqueeze(-1)  # [batch, longer, classes]
        taken = (prefix.unsqueeze(-1) & is_last.unsqueeze(2)).any(1)
        return torch.logaddexp(stay, added), torch.where(taken, _NEVER, grown)

    def _chosen(self, chosen, stay_blank, stay_label, grown, classes):
        width = self.blank.shape[1]
        grows = chosen >= width
        parent = torch.where(grows, (chosen - width) // classes, chosen)
        label = torch.where(grows, (chosen - width) % classes, 0)
        new = _Beams.__new__(_Beams)
        lengths = torch.gather(self.lengths, 1, parent)
        labels = torch.gather(self.labels, 1, parent.unsqueeze(-1).expand_as(self.labels))
        here = torch.arange(labels.shape[2]) == lengths.unsqueeze(-1)
        new.labels = torch.where(grows.unsqueeze(-1) & here, label.unsqueeze(-1).to(torch.int32), labels)
        new.lengths = lengths + grows.to(torch.int32)
        flat = grown.reshape(grown.shape[0], -1)
        grown_label = torch.gather(flat, 1, (chosen - width).clamp(min=0))
        new.blank = torch.where(grows, _NEVER, torch.gather(stay_blank, 1, parent))
        new.label = torch.where(grows, grown_label, torch.gather(stay_label, 1, parent))
        return new

    def _where(self, active, new):
        for name in ("labels", "lengths", "blank", "label"):
            old = getattr(self, name)
            mask = active.reshape(-1, *([1] * (old.dim() - 1)))
            setattr(new, name, torch.where(mask, getattr(new, name), old))
        return new
