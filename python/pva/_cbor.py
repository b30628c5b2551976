"""CBOR (RFC 8949), as far as debug files need it: integers, text, lists, maps, booleans and null."""

from __future__ import annotations

import struct
from typing import Any

_SIMPLE = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}
_WIDTHS = {24: ">B", 25: ">H", 26: ">I", 27: ">Q"}


def dumps(value: Any) -> bytes:
    """The bytes of a value."""
    if value is None or isinstance(value, bool):
        return _SIMPLE[value]
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, str):
        text = value.encode()
        return _head(3, len(text)) + text
    if isinstance(value, (list, tuple)):
        return _head(4, len(value)) + b"".join(map(dumps, value))
    if isinstance(value, dict):
        return _head(5, len(value)) + b"".join(dumps(key) + dumps(one) for key, one in value.items())
    raise TypeError(f"{type(value).__name__} is none of the types that debug files hold")


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    code = next(code for code, width in _WIDTHS.items() if number < 1 << 8 * struct.calcsize(width))
    return bytes([major << 5 | code]) + struct.pack(_WIDTHS[code], number)


def loads(data: bytes) -> Any:
    """The value of bytes."""
    try:
        value, end = _value(data, 0)
    except (IndexError, struct.error, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise ValueError("the debug file is cut short or damaged") from error
    if end != len(data):
        raise ValueError("the debug file has bytes behind its end")
    return value


def _value(data: bytes, at: int) -> tuple[Any, int]:
    major, low = data[at] >> 5, data[at] & 31
    if major == 7:
        simple = {code[0]: value for value, code in _SIMPLE.items()}
        if data[at] not in simple:
            raise ValueError(f"the debug file has a value of a kind that is not known, {data[at]:#x}")
        return simple[data[at]], at + 1
    number, at = _number(data, at + 1, low)
    if major in (0, 1):
        return (number if major == 0 else -1 - number), at
    if major == 3:
        if at + number > len(data):
            raise IndexError
        return data[at : at + number].decode(), at + number
    items = []
    for _ in range(number * (2 if major == 5 else 1)):
        item, at = _value(data, at)
        items.append(item)
    if major == 4:
        return items, at
    if major == 5:
        return dict(zip(items[::2], items[1::2])), at
    raise ValueError(f"the debug file has a value of a kind that is not known, {major}")


def _number(data: bytes, at: int, low: int) -> tuple[int, int]:
    if low < 24:
        return low, at
    if low not in _WIDTHS:
        raise ValueError("the debug file has a length that is not known")
    width = _WIDTHS[low]
    return struct.unpack_from(width, data, at)[0], at + struct.calcsize(width)
