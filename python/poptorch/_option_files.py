"""Options from text: a JSON object of setter calls, or a file with one call a line."""

import enum
import os

from . import enums


class ConfigFileError(Exception):
    """A line of an options file that cannot be run."""


def apply_json(options, calls):
    """Calls every setter; names may be dotted, a list holds several arguments, "Enum.Value" is a member."""
    for name, value in calls.items():
        setter = options
        for part in name.split("."):
            setter = getattr(setter, part)
        arguments = value if isinstance(value, list) else [value]
        setter(*map(_member, arguments))


def _member(value):
    """The member that "Enum.Value" names; any other value as it is."""
    if not isinstance(value, str) or value.count(".") != 1:
        return value
    kind, name = value.split(".")
    enumeration = getattr(enums, kind, None)
    if isinstance(enumeration, type) and issubclass(enumeration, enum.Enum) and name in enumeration.__members__:
        return enumeration[name]
    return value


def load_file(options, filepath):
    """Runs the file's calls on the options, none of them if one has a syntax error."""
    import poptorch

    with open(filepath, encoding="utf-8") as file:
        calls = [f"options.{line}" for line in map(_statement, file) if line]
    compiled = [_compile(call, number, filepath) for number, call in enumerate(calls, 1)]
    for code in compiled:
        eval(code, {"options": options, "poptorch": poptorch})  # noqa: S307 (the file is the user's program)


def _statement(line):
    """The call in a line, without its comment."""
    return line.split("#", 1)[0].strip()


def _compile(call, number, filepath):
    try:
        return compile(call, filepath, "eval")
    except SyntaxError as error:
        # Since Python 3.10 an unclosed bracket has a text of its own; the file format's documentation has the old one.
        reason = "unexpected EOF while parsing" if "was never closed" in str(error.msg) else error.msg
        name = os.path.basename(filepath)
        raise ConfigFileError(f"SyntaxError at line {number} of {name}: {reason}\n> {call}") from error
