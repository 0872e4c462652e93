"""What is checked of JSON lines before Arrow parses them, whose parser crashes on some other text."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from fultr.errors import InputError

DEEPEST = 1000
"""How deep JSON may be nested; Arrow's parser exhausts the stack at 100,000."""

NO_OBJECT = re.compile(rb"\n(?:\xef\xbb\xbf)?+[ \t\r]*+[^{ \t\r\n]|[^} \t\r\n][ \t\r]*+\n")
"""The start or the end of a line that is no JSON object; a mark of the order of bytes may come before it."""

LONG_LINE = re.compile(rb"[^\n]{%d,}" % DEEPEST)

BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])')
"""Text in JSON, which may hold brackets, or a bracket."""


class ObjectLines(io.RawIOBase):
    """Text of JSON lines, as it is; a line that is no object, or is nested too deep, is refused."""

    def __init__(self, source: Any, file: str | Path) -> None:
        self.source, self.file = source, file
        self.begun, self.row = b"\n", 1

    def readable(self) -> bool:
        """Say that there is text to read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, after checking the lines that end in them."""
        block: bytes = self.source.read(size if size >= 0 else None)
        text = self.begun + (block or b"\n")
        stop = text.rfind(b"\n") + 1
        self._check(text[:stop])
        self.row += text.count(b"\n", 1, stop)
        self.begun = b"\n" + text[stop:]
        return block

    def _check(self, lines: bytes) -> None:
        """Check whole lines, with the end of the line before them."""
        wrong = NO_OBJECT.search(lines)
        if wrong is not None:
            raise self._error("each line must be one JSON object", lines[: wrong.end() - 1])
        try:
            lines.decode()
        except UnicodeDecodeError as error:
            raise self._error("the line is not UTF-8 text; save it as UTF-8", lines[: error.start]) from None
        for long in LONG_LINE.finditer(lines):
            if _depth(long[0]) > DEEPEST:
                raise self._error(f"the line is nested more than {DEEPEST} deep", lines[: long.start()])

    def _error(self, problem: str, before: bytes) -> InputError:
        return InputError(problem, file=self.file, row=self.row + before.count(b"\n") - 1)


def _depth(line: bytes) -> int:
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return 0
    depth = deepest = 0
    for opening, closing in BRACKETS.findall(line):
        depth += bool(opening) - bool(closing)
        deepest = max(deepest, depth)
    return deepest
