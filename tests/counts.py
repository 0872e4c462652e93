"""Counts as plain values, to be compared."""

from __future__ import annotations

from typing import Any

from fultr import Counts
from fultr.data import Cells


def cells_of(cells: Cells) -> list[tuple[Any, ...]]:
    """All cells in their order."""
    propensity = [None] * cells.row.size if cells.propensity is None else cells.propensity.tolist()
    columns = (cells.row, cells.position, cells.impressions, cells.clicks)
    found = list(zip(*(column.tolist() for column in columns), propensity, strict=True))
    assert len({(row, position, held) for row, position, _, _, held in found}) == len(found)
    return found


def content(counts: Counts) -> dict[str, Any]:
    """All that counts hold; where they come from is left out."""
    data = counts.data
    return {
        "features": (data.features.shape, data.features.tobytes()),
        "offsets": data.offsets.tolist(),
        "group": (data.group.tolist(), data.group_names),
        "query_id": None if data.query_id is None else (data.query_id.dtype.kind, data.query_id.tolist()),
        "doc_id": None if data.doc_id is None else (data.doc_id.dtype.kind, data.doc_id.tolist()),
        "names": (data.feature_names, data.group_columns, data.source),
        "impressions": (counts.impressions.tolist(), counts.clicked_impressions.tolist()),
        "cells": cells_of(counts.cells),
        "planted": cells_of(counts.planted),
        "has_propensity": (counts.cells.propensity is None, counts.planted.propensity is None),
        "about": (counts.position_bias, counts.noise, counts.empties_dropped, counts.origin),
        "context": (
            None if counts.context is None else counts.context.tolist(),
            counts.context_name,
            counts.context_values,
        ),
        "facts": None if counts.facts is None else counts.facts.to_dict(),
    }
