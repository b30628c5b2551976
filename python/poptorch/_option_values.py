"""What Options and its parts have in common: a fixed set of values, checks, freezing, printing."""

import copy


class OptionValues:
    """A fixed set of named values; reading is by attribute, writing by setters or `set(name=value)`.

    Frozen once a model or a data loader uses it: a change afterwards could not reach them.
    """

    def __init__(self, **values):
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_is_frozen", False)

    def __getattr__(self, name):
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__} has no option {name}")

    def __setattr__(self, name, value):
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        self.checkIsFrozen(name)
        if name not in self._values:
            raise AttributeError(f"{type(self).__name__} has no option {name}; it has {', '.join(self._values)}")
        self._values[name] = value

    def set(self, **values):
        """Writes values by name."""
        self.checkIsFrozen()
        for name, value in values.items():
            assert name in self._values, f"{type(self).__name__} has no option {name}"
            self._values[name] = value
        return self

    def exists(self, name):
        """Is there a value of that name?"""
        return name in self._values

    def checkIsFrozen(self, option=None):  # noqa: ARG002 (the public signature)
        """Raises AttributeError when nothing may be changed any more."""
        if self._is_frozen:
            raise AttributeError("Can't modify frozen Options")

    def _parts(self):
        """The objects of this kind that belong to this one, by name."""
        return {name: part for name, part in self.__dict__.items() if isinstance(part, OptionValues)}

    def _freeze(self, frozen=True):
        for part in self._parts().values():
            part._freeze(frozen)
        object.__setattr__(self, "_is_frozen", frozen)

    def _unfreeze(self):
        self._freeze(False)

    def __deepcopy__(self, memo):
        """An unfrozen copy."""
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            object.__setattr__(new, name, copy.deepcopy(value, memo))
        new._unfreeze()
        return new

    def __getstate__(self):
        return dict(self.__dict__)

    def __setstate__(self, state):
        self.__dict__.update(state)

    def toDict(self):
        """The values by name."""
        return dict(self._values)

    def __repr__(self):
        values = [f"{name}={value!r}" for name, value in self._values.items()]
        parts = [f"{name.lstrip('_')}={part!r}" for name, part in self._parts().items()]
        return f"{type(self).__name__}({', '.join(values + parts)})"


def positive(name, value):
    """Checks that an option is a whole number above 0."""
    assert isinstance(value, int) and not isinstance(value, bool) and value > 0, (
        f"{name} must be an integer greater than 0, not {value!r}"
    )
    return value


def boolean(name, value):
    """Checks that an option is True or False."""
    assert isinstance(value, bool), f"{name} must be True or False, not {value!r}"
    return value


def member(name, value, enumeration):
    """Checks that an option is of the enumeration."""
    assert isinstance(value, enumeration), f"{name} must be a poptorch.{enumeration.__name__}, not {value!r}"
    return value
