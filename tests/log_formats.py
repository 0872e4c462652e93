"""Small logs in the layouts of others, for tests."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from fultr import ClickLog

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
