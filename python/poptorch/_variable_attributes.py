"""Which of an optimizer's numbers may change between steps and which the compiler may build in."""


class VariableAttributes:
    """Attributes given to the constructor are variable, the others constant, until marked otherwise."""

    def __init__(self, variable_attributes, allowed_attributes):
        self._variable_attributes = list(variable_attributes)
        self._allowed_attributes = list(allowed_attributes)

    def isConstant(self, attr):
        """May the value be built into the compiled program?"""
        return self._checked(attr) not in self._variable_attributes

    def markAsConstant(self, attr):
        """The value never changes after compilation."""
        if not self.isConstant(attr):
            self._variable_attributes.remove(attr)

    def markAsVariable(self, attr):
        """The value may change between steps."""
        if self.isConstant(attr):
            self._variable_attributes.append(attr)

    def _checked(self, attr):
        assert attr in self._allowed_attributes, (
            f"The optimizer has no attribute {attr}; it has {', '.join(self._allowed_attributes)}"
        )
        return attr
