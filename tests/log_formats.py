"""Small logs in the layouts of others, for tests."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fultr import ClickLog, Counts

GOOD_COUNTS: dict[str, list[Any]] = {
    "query_id": ["a", "a", "a"],
    "doc_id": ["x", "y", "x"],
    "position": [1, 1, 2],
    "impressions": [90, 10, 10],
    "clicks": [30, 5, 2],
    "query_impressions": [100, 100, 100],
    "group": ["l", "r", "l"],
    "feature_1": [1.0, 2.0, 1.0],
}


def aggregated(counts: Counts) -> pl.DataFrame:
    """The layout of counts by query, document and position; each query must have one list."""
    features = counts.data.to_frame().select("list", "doc_id", pl.col("^feature_.*$"))
    frame = counts.to_frame().rename({"list_impressions": "query_impressions"})
    return frame.join(features, on=["list", "doc_id"], maintain_order="left").drop("list")


def write_lightgbm(log: ClickLog, path: Path) -> None:
    """Write what was shown as data for LightGBM, with its queries, positions, ids and groups beside it."""
    shown = np.flatnonzero(log.position)
    row, data = log.row_of_entry[shown], log.data
    impressions, lengths = np.unique(log.impression_of_entry[shown], return_counts=True)
    assert data.query_id is not None
    assert data.doc_id is not None
    lines: dict[str, Any] = {
        "": [
            f"{click:d} " + " ".join(f"{index}:{value}" for index, value in enumerate(features))
            for click, features in zip(log.click[shown], data.features[row], strict=True)
        ],
        ".query": lengths,
        ".position": log.position[shown],
        ".query_id": data.query_id[log.lists[impressions]],
        ".doc_id": data.doc_id[row],
        ".item_group": np.array([*data.group_names, ""], dtype=object)[data.group[row]],
    }
    for name, values in lines.items():
        path.with_name(path.name + name).write_text("".join(f"{value}\n" for value in values))


def write_lines(records: list[Any], path: Path, form: str = "plain") -> Path:
    with path.open("w") as file:
        for record in records:
            if form == "bulk":
                file.write(json.dumps({"index": {"_index": "ubi"}}) + "\n")
            file.write(json.dumps({"_source": record} if form == "exported" else record) + "\n")
    return path


def small_ubi() -> tuple[list[Any], list[Any]]:
    queries: list[Any] = [
        {"query_id": "s1", "user_query": "tv", "query_response_hit_ids": ["a", "b", "c"]},
        {"query_id": "s2", "user_query": "tv", "query_response_hit_ids": ["b", "a"]},
        {"query_id": "s3", "user_query": "nothing", "query_response_hit_ids": []},
    ]
    events: list[Any] = [
        event("s1", "impression", "a", 1),
        event("s1", "impression", "b", 2),
        event("s1", "click", "b", 2),
        event("s2", "impression", "b", 1),
    ]
    return queries, events


def positions_by_document(log: ClickLog) -> list[dict[Any, int]]:
    """The positions of the candidates of each impression by document, 0 where one was not shown."""
    assert log.data.doc_id is not None
    document = log.data.doc_id[log.row_of_entry].tolist()
    entries = list(zip(document, log.position.tolist(), strict=True))
    return [dict(entries[start:stop]) for start, stop in pairwise(log.offsets.tolist())]


def event(search: str, action: Any, document: Any, ordinal: Any) -> dict[str, Any]:
    return {
        "action_name": action,
        "query_id": search,
        "event_attributes": {"object": {"object_id": document}, "position": {"ordinal": ordinal}},
    }
