"""Changes of well-formed content: of cells, of nodes of JSON, of lines, and of single bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

TEXTS = (
    *(
        "",
        " ",
        "0",
        "1",
        "2",
        "-1",
        "1.5",
        "1e0",
        "1e400",
        "-0",
        "+1",
        ".5",
        "1.",
        "1e-300",
        "5e-324",
        "3.5e38",
    ),
    *(
        "nan",
        "inf",
        "-Infinity",
        "true",
        "FALSE",
        "null",
        "None",
        "NA",
        "0x10",
        "1_000",
        "1,5",
        "१",
        "1e",
        "--1",
    ),
    *("9" * 19, "9" * 20, "9" * 400, "9" * 20_000, "1" + "0" * 30, "2147483648", "9007199254740993"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551616", "007"),
    *(
        '"',
        '""',
        "'",
        ",",
        "\t",
        "\r",
        "\n",
        "\r\n",
        ";",
        "#",
        ":",
        "\\",
        "\x00",
        "a\x00b",
        "a\x00c",
        "\x1b[31m",
    ),
    *(
        "\ufeff",
        "\u202e",
        "\u2028",
        "é",
        "e\u0301",
        "👩‍🚀",
        "日本",
        "=1+1",
        "a" * 300,
        "..",
        "../x",
        "/dev/zero",
    ),
    *("2024-05-01", "2024-05-01 12:30:00", "2024-05-01T12:00:00+02:00", "q", "a", "b", "x", "y", "feature_1"),
)
"""Texts that readers have taken for something else."""

NUMBERS = (
    "0",
    "1",
    "-1",
    "1.5",
    "1e5",
    "1e400",
    "nan",
    "inf",
    "9" * 20_000,
    "5e-324",
    "2147483648",
    "0x10",
    " 1 ",
)

RAW = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "9" * 40,
    "9" * 5000,
    "-0",
    "01",
    "1e5",
    "[" * 3000,
    '"\\ud800"',
)
"""JSON as no writer of JSON makes it."""

NODES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        0.5,
        -0.5,
        1e308,
        5e-324,
        2**31,
        2**53,
        2**63,
        2**64,
        10**30,
        "",
        [],
        {},
    ),
    *(
        [[]],
        [None],
        [0, 1],
        {"": None},
        {"values": [1]},
        [1.0, "a"],
        [[1, 2], [3]],
        "x" * 300,
        "\x00",
        "\x1b[31m",
    ),
)
"""Values that stand where others are expected."""

MARK = "raw text: "


def text(rng: Random) -> str:
    """Return a hostile text, or a short one of letters that matter to some reader."""
    if rng.random() < 0.7:
        return rng.choice(TEXTS)
    return "".join(rng.choice("0123456789+-.eE,\"'\t\n\r :#ax\x00é") for _ in range(rng.randrange(1, 8)))


def changed_cells(rows: list[list[str]], rng: Random) -> list[list[str]]:
    """Return a table of text, its header first, with some cells, rows and columns changed."""
    rows = [list(row) for row in rows]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        row = rng.randrange(len(rows))
        column = rng.randrange(max(len(rows[row]), 1))
        kind = rng.random()
        if kind < 0.5 and rows[row]:
            rows[row][column] = rng.choice(NUMBERS) if rng.random() < 0.3 else text(rng)
        elif kind < 0.6:
            other = rng.randrange(len(rows))
            if column < len(rows[other]) and column < len(rows[row]):
                rows[row][column] = rows[other][column]
        elif kind < 0.7:
            rows.insert(rng.randrange(len(rows) + 1), list(rows[row]))
        elif kind < 0.78 and len(rows) > 1:
            del rows[row]
        elif kind < 0.84 and rows[row]:
            del rows[row][column]
        elif kind < 0.9:
            rows[row].insert(column, text(rng))
        elif kind < 0.95:
            rows = [[cell for index, cell in enumerate(one) if index != column] for one in rows]
        else:
            rng.shuffle(rows)
        rows = rows or [[""]]
    return rows


def changed_json(content: Any, rng: Random, changes: int | None = None) -> Any:
    """Return plain values with some nodes changed; `dumped` writes them."""
    content = deepcopy(content)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3)) if changes is None else changes):
        nodes = list(_nodes(content))
        if not nodes:
            return deepcopy(rng.choice(NODES))
        holder, key = rng.choice(nodes)
        kind = rng.random()
        if kind < 0.55:
            holder[key] = rng.choice((deepcopy(rng.choice(NODES)), MARK + rng.choice(RAW), text(rng)))
        elif kind < 0.65:
            other, at = rng.choice(nodes)
            holder[key] = deepcopy(other[at])
        elif kind < 0.75:
            del holder[key]
        elif kind < 0.85 and isinstance(holder, list):
            holder.insert(key, deepcopy(holder[key]))
        elif kind < 0.9 and isinstance(holder[key], int | float) and math.isfinite(holder[key]):
            holder[key] = holder[key] * rng.choice((-1, 0, 1.5, 10, 1000)) + rng.choice((0, 1))
        elif isinstance(holder, dict):
            holder[text(rng)] = holder.pop(key)
    return content


def _nodes(content: Any) -> list[tuple[Any, Any]]:
    """Return where all values of a tree are held."""
    found: list[tuple[Any, Any]] = []
    stack = [content]
    while stack:
        holder = stack.pop()
        keys = (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else ()
        )
        for key in keys:
            found.append((holder, key))
            stack.append(holder[key])
    return found


def dumped(content: Any, rng: Random) -> bytes:
    """Return values as JSON, now and then in another writing."""
    made = json.dumps(content, ensure_ascii=rng.random() < 0.3, indent=rng.choice((None, None, 1)))
    for raw in RAW:
        made = made.replace(json.dumps(MARK + raw), raw).replace(
            json.dumps(MARK + raw, ensure_ascii=False), raw
        )
    return encoded(made)


def encoded(content: str) -> bytes:
    return content.encode("utf-8", "surrogatepass")


def changed_bytes(data: bytes, rng: Random) -> bytes:
    """Return damaged content."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(DAMAGE)(data, rng)
    return data


def maybe_damaged(data: bytes, rng: Random, share: float = 0.1) -> bytes:
    return changed_bytes(data, rng) if rng.random() < share else data


def _cut(data: bytes, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 1, 2, 8, 64)))


def _replaced(new: Callable[[bytes, Random], bytes]) -> Callable[[bytes, Random], bytes]:
    def change(data: bytes, rng: Random) -> bytes:
        start, stop = _cut(data, rng)
        return data[:start] + new(data[start:stop], rng) + data[stop:]

    return change


DAMAGE: tuple[Callable[[bytes, Random], bytes], ...] = (
    _replaced(lambda old, rng: bytes(byte ^ (1 << rng.randrange(8)) for byte in old[:1]) + old[1:]),
    _replaced(lambda old, rng: rng.randbytes(1) + old[1:]),
    _replaced(lambda old, rng: rng.randbytes(len(old))),
    _replaced(lambda old, rng: rng.randbytes(rng.randrange(1, 9)) + old),
    _replaced(lambda old, rng: encoded(text(rng)) + old),
    _replaced(lambda old, _: old + old),
    _replaced(lambda _, __: b""),
    _replaced(lambda old, _: bytes(len(old))),
    lambda data, rng: data[: rng.randrange(len(data) + 1)],
    lambda data, rng: data + data[rng.randrange(len(data) + 1) :],
)
