"""Audits as files: one JSON object, tables of groups and of pairs, and a picture."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fultr.audits.pictures import draw_shares
from fultr.audits.result import Audit
from fultr.errors import visible
from fultr.files import make_folder, read_json, write_text, written_together

AUDIT, GROUPS, PAIRS = "audit.json", "audit_groups.csv", "audit_pairs.csv"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a text must not start with in a table that people open in a spreadsheet."""

PICTURES = ("audit.png", "audit.svg")


def write_audit(audit: Audit, folder: str | Path) -> list[Path]:
    """Write audit.json, audit_groups.csv, audit_pairs.csv and a picture into a folder, made if need be.

    Returns what was written. There is a picture only if there are groups.
    """
    from fultr import __version__

    target = make_folder(folder)
    content = {"fultr": __version__, **audit.to_dict()}
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    with written_together():
        written = [
            write_text(target / AUDIT, text),
            write_text(target / GROUPS, _table(list(audit.group_rows()))),
            write_text(target / PAIRS, _table(list(audit.pair_rows()))),
        ]
        if audit.logged.groups:
            written += [draw_shares(audit, target / name) for name in PICTURES]
    return written


def read_audit(path: str | Path) -> Audit:
    """Read an audit.json that `write_audit` wrote."""
    return read_json(path, Audit.from_dict)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV; what is not defined is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["ranking"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _short(value: Any) -> Any:
    if isinstance(value, str):  # a spreadsheet would take such a name for a formula, and run it
        safe = f"'{value}" if value.startswith(FORMULA_STARTS) else value
        return visible(safe)  # a table may be shown in a terminal, and csv does not quote all line ends
    if not isinstance(value, float):
        return value
    return f"{value:.6g}" if math.isfinite(value) else ""
