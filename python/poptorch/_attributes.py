"""String attributes on the operations that are made inside `with Attribute(group={"key": "value"})`."""

attributes_lists = [{}]


class Attribute:
    """Adds attributes while its block runs; nested ones add up."""

    def __init__(self, **attributes):
        self._attributes = attributes
        for group, values in attributes.items():
            assert isinstance(values, dict), f"Attribute {group} must be a dict"
            for key, value in values.items():
                assert isinstance(key, str) and isinstance(value, str), f"Attribute {group} holds strings only"

    def __enter__(self):
        merged = {group: dict(values) for group, values in attributes_lists[-1].items()}
        for group, values in self._attributes.items():
            merged.setdefault(group, {}).update(values)
        attributes_lists.append(merged)
        return self

    def __exit__(self, *_):
        attributes_lists.pop()


def accessAttributes(attribute_id_str=None):
    """The attributes in force; with a number, those that were in force at that depth."""
    return attributes_lists[-1 if attribute_id_str is None else int(attribute_id_str)]
