"""Running commands in tests, and what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fultr.cli.main import run


def result_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return the exit code of a command, its standard output and its standard error."""
    code = run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Return the one JSON object that a command prints."""
    code, out, err = result_of(capsys, *arguments, "--json")
    assert code == 0, err
    content = json.loads(out)
    assert isinstance(content, dict)
    return content


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object, unchanged: Path | None = None) -> str:
    """Return the one line of a refused command, which prints nothing else and leaves a folder as it was."""
    before = contents_of(unchanged)
    code, out, err = result_of(capsys, *arguments)
    assert contents_of(unchanged) == before
    assert code == 2, err
    assert not out
    assert err.count("\n") == 1
    return err


def contents_of(folder: Path | None) -> dict[Path, bytes | None]:
    """Return what is in a folder and below it."""
    paths = [] if folder is None else sorted(folder.rglob("*"))
    return {path: path.read_bytes() if path.is_file() else None for path in paths}
