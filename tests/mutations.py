"""Policy files gone wrong: damage as it happens, and files made by hand to mislead whoever reads them.

The layout is written down here once more, apart from the package, so that a change of the format is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

START = b'{"__metadata__":{"fultr":"{\\"sha256\\":\\"'
DIGEST_AT = 8 + len(START)
DIGEST_END = DIGEST_AT + 64

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[][{},:]')
SHORT_TOKENS = r"""
    0 1 -1 2 1.0 -0.0 1e999 NaN -Infinity null true , : { } [] {} [0] [0,0] [4611686018427387904,4,0]
    "" "\ud800" "\u0000" {"a":1,"a":2} "F16" "F32" "F64" "I64" "BF16" "F4" "F128" "dtype" "shape"
    "data_offsets" "weights" "__metadata__" "content" "format" "format_version" "fultr" "sha256"
"""
HOSTILE_TOKENS = [
    *SHORT_TOKENS.split(),
    *(str(2**power + shift) for power in (31, 32, 62, 63, 64) for shift in (-1, 0)),
    *("", "\x00", "1" + "0" * 400, "1" + "0" * 5000, "[" + "1," * 70 + "1]"),
    *("[" * 70 + "]" * 70, "[" * 9000, "[" * 9000 + "]" * 9000, '{"a":' * 2000 + "1" + "}" * 2000),
]


class Mutation(NamedTuple):
    """A file that differs from the one it was made of, and whether its checksum is right all the same."""

    kind: str
    data: bytes
    resealed: bool


def resealed(data: bytes) -> bytes:
    """Put the right checksum where it belongs."""
    if len(data) < DIGEST_END:
        return data
    digest = hashlib.sha256(data[:DIGEST_AT] + b"0" * 64 + data[DIGEST_END:]).hexdigest()
    return data[:DIGEST_AT] + digest.encode() + data[DIGEST_END:]


def split(data: bytes) -> tuple[bytes, bytes]:
    """Part a well-formed file into its header and the values of its tensors."""
    end = 8 + int.from_bytes(data[:8], "little")
    return data[8:end], data[end:]


def parts(data: bytes) -> tuple[str, str, bytes]:
    """Part a well-formed file into what `assembled_from` makes it of."""
    header, values = split(data)
    metadata, end = json.JSONDecoder().raw_decode(header.decode(), len('{"__metadata__":'))
    return metadata["fultr"][len('{"sha256":"",') + 64 :], header.decode()[end:].rstrip()[:-1], values


def assembled(header: bytes, values: bytes) -> bytes:
    """Make a file of a header and values, with the length and the checksum they need."""
    return resealed(len(header).to_bytes(8, "little") + header + values)


def assembled_from(description: str, tensors: str = "", values: bytes = b"") -> bytes:
    """Make a file of what follows the digest in the description, and the metadata in the header."""
    text = json.dumps('{"sha256":"' + "0" * 64 + '",' + description, ensure_ascii=False)
    return assembled(
        f'{{"__metadata__":{{"fultr":{text}}}{tensors}}}'.encode("utf-8", "surrogatepass"), values
    )


def single_byte_changes(data: bytes) -> Iterator[bytes]:
    """Change each byte in five ways: some of its bits, among them that of lower case, and all at once."""
    for index, byte in enumerate(data):
        for mask in (1, 16, 32, 128, 255):
            yield data[:index] + bytes([byte ^ mask]) + data[index + 1 :]


def mutations(data: bytes, other: bytes, *, count: int, seed: int) -> Iterator[Mutation]:
    """Make `count` files out of a policy file, none of them the same as it.

    In turn: damage that the checksum must show; the same sort of damage with the checksum put right; changes
    of single JSON tokens of the header or of the description, with length and checksum put right.

    Parameters
    ----------
    data
        A policy file.
    other
        Another one, to take pieces from.
    count
        How many to make.
    seed
        The seed of all that is random.
    """
    rng = np.random.default_rng(seed)
    makers: list[Callable[[bytes, bytes, np.random.Generator], Mutation]] = [_damaged, _disguised, _edited]
    made = 0
    while made < count:
        mutation = makers[made % len(makers)](data, other, rng)
        if mutation.data != data:
            made += 1
            yield mutation


def _damaged(data: bytes, other: bytes, rng: np.random.Generator) -> Mutation:
    kind = list(DAMAGE)[rng.integers(len(DAMAGE))]
    for _ in range(rng.integers(1, 4)):
        data = DAMAGE[kind](data, other, rng)
    return Mutation(kind, data, resealed=False)


def _disguised(data: bytes, other: bytes, rng: np.random.Generator) -> Mutation:
    kind, changed, _ = _damaged(data, other, rng)
    return Mutation(f"{kind}, resealed", resealed(changed), resealed=True)


def _edited(data: bytes, _other: bytes, rng: np.random.Generator) -> Mutation:
    description, tensors, values = parts(data)
    where = ("description", "tensors", "values")[rng.choice(3, p=(0.5, 0.45, 0.05))]
    for _ in range(rng.integers(1, 3)):
        if where == "description":
            description = _edited_tokens(description, rng)
        elif where == "tensors":
            tensors = _edited_tokens(tensors, rng)
        else:
            values = DAMAGE["byte"](values, b"", rng)
    return Mutation(f"edited {where}", assembled_from(description, tensors, values), resealed=True)


def _edited_tokens(text: str, rng: np.random.Generator) -> str:
    places = [match.span() for match in TOKEN.finditer(text)]
    if not places:
        return text
    (first, end), (other_first, other_end) = (places[rng.integers(len(places))] for _ in range(2))
    token, other = text[first:end], text[other_first:other_end]
    new = (
        HOSTILE_TOKENS[rng.integers(len(HOSTILE_TOKENS))],
        other,
        token + token,
        token + "," + text[min(first, other_first) : max(end, other_end)],
    )[rng.choice(4, p=(0.55, 0.25, 0.1, 0.1))]
    return text[:first] + new + text[end:]


def _piece(data: bytes, rng: np.random.Generator) -> slice:
    start = int(rng.integers(len(data) + 1))
    return slice(start, start + int(rng.integers(1, rng.choice((2, 8, 64, 512)))))


def _flip(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    if not data:
        return data
    at = int(rng.integers(len(data)))
    return data[:at] + bytes([data[at] ^ (1 << rng.integers(8))]) + data[at + 1 :]


def _byte(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    if not data:
        return data
    at = int(rng.integers(len(data)))
    return data[:at] + rng.bytes(1) + data[at + 1 :]


def _insert(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    at = _piece(data, rng)
    return data[: at.start] + rng.bytes(at.stop - at.start) + data[at.start :]


def _delete(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    at = _piece(data, rng)
    return data[: at.start] + data[at.stop :]


def _repeat(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    at = _piece(data, rng)
    return data[: at.stop] + data[at] + data[at.stop :]


def _clear(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    at = _piece(data, rng)
    return data[: at.start] + bytes(len(data[at])) + data[at.stop :]


def _swap(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    a, b, c, d = sorted(int(place) for place in rng.integers(len(data) + 1, size=4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _splice(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    at, cut = int(rng.integers(len(data) + 1)), int(rng.integers(len(other) + 1))
    return data[:at] + other[at if rng.random() < 0.5 else cut :]


def _truncate(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    return data[: rng.integers(len(data) + 1)]


def _append(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    return data + (rng.bytes(int(rng.integers(1, 20))), b"\x00" * 8, other, data)[rng.integers(4)]


def _header_length(data: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    length = int.from_bytes(data[:8], "little")
    near = length + int(rng.integers(-200, 200))
    choices = (
        near,
        len(data) - 8,
        len(data),
        0,
        2,
        DIGEST_END - 8,
        16 << 20,
        1 << 31,
        1 << 63,
        (1 << 64) - 1,
    )
    return (choices[rng.integers(len(choices))] % (1 << 64)).to_bytes(8, "little") + data[8:]


DAMAGE: dict[str, Callable[[bytes, bytes, np.random.Generator], bytes]] = {
    "flip": _flip,
    "byte": _byte,
    "insert": _insert,
    "delete": _delete,
    "repeat": _repeat,
    "clear": _clear,
    "swap": _swap,
    "splice": _splice,
    "truncate": _truncate,
    "append": _append,
    "header length": _header_length,
}
