"""Names of libpva that a report of ours has no value for."""

from __future__ import annotations


class Facts:
    """An object whose missing attributes say why they are missing."""

    #: Reasons by name: names of libpva without a counterpart.
    ABSENT: dict[str, str] = {}

    def __getattr__(self, name: str):
        kind = type(self).__name__
        if name in self.ABSENT:
            raise AttributeError(f"{kind}.{name}: {self.ABSENT[name]}")
        raise AttributeError(f"{kind} has no attribute {name!r}")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({shown})"


#: The reasons that recur.
PER_TILE = "the report has the busiest tile and the mean of the others, not every tile's cycles"
NO_POPLAR = "no Poplar wrote this report"
BY_CATEGORY = "the report has bytes by category for the fullest tile and for all tiles together, not for each tile"
ONE_STEP = "the report has each step's fullest tile, not every variable's bytes on every tile"
