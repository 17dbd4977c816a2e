"""Read the points of a PLY file, ascii or binary; faces, colours and other properties are left out.

Own code, because its header says how many points there are, and plan and limits need that before anything is read.
Source: Greg Turk, "The PLY Polygon File Format", 1994.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kosmos import SampleError
from kosmos_pointcloud.text import parse_rows

MAGIC = b"ply"
MAX_LINES, MAX_LINE = 256, 1024
MAX_COUNT = 1 << 31
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
SIZES = {"i1": "char int8", "u1": "uchar uint8", "i2": "short int16", "u2": "ushort uint16", "i4": "int int32"}
SIZES |= {"u4": "uint uint32", "f4": "float float32", "f8": "double float64"}
TYPES = {name: kind for kind, names in SIZES.items() for name in names.split()}


@dataclass
class Element:
    """A kind of entry that the file holds ``count`` of."""

    name: str
    count: int
    properties: dict[str, str] = field(default_factory=dict)
    """Name to type without byte order; empty for a list."""


@dataclass(frozen=True)
class Header:
    """Where the points are."""

    order: str
    """``<`` or ``>``; empty in ascii."""
    before: tuple[Element, ...]
    """What has to be skipped."""
    vertex: Element


def read_header(file: BinaryIO) -> Header:
    """The header, leaving ``file`` behind it.

    Raises:
        SampleError: it is broken, or holds no points with x, y and z.
    """
    order: str | None = None
    elements: list[Element] = []
    for number in range(MAX_LINES):
        line = file.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise SampleError(f"ply header, line {number + 1}: ends in its middle")
        match line.decode("latin-1").split():
            case ["ply"] if number == 0:
                pass
            case ["format", kind, "1.0"] if kind in ORDERS:
                order = ORDERS[kind]
            case ["comment" | "obj_info", *_] | []:
                pass
            case ["element", name, count] if count.isascii() and count.isdigit() and int(count) < MAX_COUNT:
                elements.append(Element(name, int(count)))
            case ["property", "list", _, _, name] if elements and name not in elements[-1].properties:
                elements[-1].properties[name] = ""
            case ["property", kind, name] if elements and kind in TYPES and name not in elements[-1].properties:
                elements[-1].properties[name] = TYPES[kind]
            case ["end_header"]:
                return _header(order, elements)
            case _:
                raise SampleError(f"ply header, line {number + 1}: {line[:60]!r} is not understood")
    raise SampleError(f"ply header is longer than {MAX_LINES} lines")


def _header(order: str | None, elements: list[Element]) -> Header:
    names = [element.name for element in elements]
    if order is None or "vertex" not in names:
        raise SampleError("ply header states no format or no element vertex")
    place = names.index("vertex")
    vertex, before = elements[place], tuple(elements[:place])
    if not {"x", "y", "z"} <= vertex.properties.keys() or "" in vertex.properties.values():
        raise SampleError("ply: expected points with x, y and z and without lists")
    if order and any("" in element.properties.values() for element in before):
        raise SampleError("ply: lists before the points of a binary file cannot be skipped")
    return Header(order, before, vertex)


def read_points(file: BinaryIO, header: Header) -> NDArray[Any]:
    """[points, 3] behind ``header``, whose count the caller has checked.

    Raises:
        SampleError: the file ends before the last point, or a value is no number.
    """
    count = header.vertex.count
    if not header.order:
        lines = file.read().decode("latin-1").split("\n")
        first = sum(element.count for element in header.before)
        names = list(header.vertex.properties)
        points = parse_rows(lines[first : first + count], columns=[names.index(axis) for axis in "xyz"])
        if len(points) != count:
            raise SampleError(f"ply header promises {count} points, {len(points)} are there")
        return points
    file.seek(sum(element.count * _type(element, header.order).itemsize for element in header.before), 1)
    kind = _type(header.vertex, header.order)
    data = file.read(count * kind.itemsize)
    if len(data) != count * kind.itemsize:
        raise SampleError(f"ply header promises {count} points, {len(data) // kind.itemsize} are there")
    table = np.frombuffer(data, kind)
    return np.stack([table[axis].astype(np.float64) for axis in "xyz"], axis=1)


def _type(element: Element, order: str) -> np.dtype[Any]:
    return np.dtype([(name, order + kind) for name, kind in element.properties.items()])
