"""A reader of the protobuf wire format, as much of it as execution traces need: no generated code, no dependency.

    for number, value in fields(message): ...        # int for varint and fixed fields, bytes for the rest

Sizes are checked before anything is taken, so that a broken or hostile file ends in one error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from syncline.errors import DescriptionError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(DescriptionError):
    """The bytes are not a protobuf message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place and the place after it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError(f"a number at byte {at} does not end.")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield field number, wire type and raw value of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value: int | bytes
            value, at = varint(data, at)
        elif kind == BYTES:
            size, at = varint(data, at)
            value, at = take(data, at, size)
        elif kind in (FIXED64, FIXED32):
            raw, at = take(data, at, 8 if kind == FIXED64 else 4)
            value = int.from_bytes(raw, "little")
        else:
            raise WireError(f"field {number} at byte {at} has the wire type {kind}, which no trace uses.")
        yield number, kind, value


def take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    """Return `size` bytes at a place and the place after them."""
    if size < 0 or at + size > len(data):
        raise WireError(f"byte {at} announces {size:,} bytes, but {max(len(data) - at, 0):,} are left.")
    return data[at : at + size], at + size


def messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a stream in which each is preceded by its size."""
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        message, at = take(data, at, size)
        yield message


def numbers(value: int | bytes, form: int = VARINT) -> list[int]:
    """Return a repeated whole number, packed or not, whose numbers have one wire form."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        if form == VARINT:
            number, at = varint(value, at)
        else:
            raw, at = take(value, at, 8 if form == FIXED64 else 4)
            number = int.from_bytes(raw, "little")
        found.append(number)
    return found


def signed(value: int, bits: int = 64) -> int:
    """Return a number as the signed one of so many bits that it may stand for."""
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def zigzag(value: int) -> int:
    """Return a zigzag-coded number."""
    return (value >> 1) ^ -(value & 1)


def real(value: int, form: int) -> float:
    """Return a fixed field as the float it holds."""
    raw = value.to_bytes(8 if form == FIXED64 else 4, "little")
    return float(struct.unpack("<d" if form == FIXED64 else "<f", raw)[0])
