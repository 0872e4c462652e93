"""Estimated position biases as files: one JSON object, which is read wherever a position bias is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from fultr.clicks.bias_estimate import BiasEstimate
from fultr.files import read_json, write_text


def write_bias(estimate: BiasEstimate, path: str | Path, *, tail: Literal["power"] | None = None) -> None:
    """Write an estimate; `values` and `beyond` in it are those of `to_position_bias(tail)`."""
    content = json.dumps(estimate.to_dict(tail), indent=2, allow_nan=False, ensure_ascii=False)
    write_text(path, content + "\n")


def read_bias(path: str | Path) -> BiasEstimate:
    """Read an estimate that `write_bias` wrote, with its intervals, counts and notes."""
    return read_json(path, BiasEstimate.from_dict)
