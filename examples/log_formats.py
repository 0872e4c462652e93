"""The same clicks in five layouts, each read as what it is: five times the same estimates."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import fultr
from fultr.logs import (
    lightgbm_table,
    nested_table,
    read_aggregated_log,
    ubi_table,
)

bias = fultr.PositionBias.power(eta=1.0)
data = fultr.datasets.synthetic(queries=50, list_length=5, features=3, relevant=2).train
log = fultr.simulate_clicks(data, fultr.RandomRanking(), bias, impressions=1_000, seed=0)
folder = Path(tempfile.mkdtemp())

# one row for each impression, in the order in which its documents were shown
sessions: dict[str, list[object]] = {"query_id": [], "doc_ids": [], "clicks": []}
searches, events = [], []
documents = np.arange(data.rows) if log.data.doc_id is None else log.data.doc_id
queries = np.arange(len(data)) if log.data.query_id is None else log.data.query_id
for number in range(len(log)):
    entry = np.arange(log.offsets[number], log.offsets[number + 1])
    entry = entry[np.argsort(log.position[entry])]
    shown = documents[log.row_of_entry[entry]].tolist()
    query = queries[log.lists[number]]
    sessions["query_id"].append(query)
    sessions["doc_ids"].append(shown)
    sessions["clicks"].append(log.click[entry].tolist())

    # and as User Behavior Insights keeps it
    searches.append({"query_id": f"s{number}", "user_query": str(query), "query_response_hit_ids": shown})
    for document in documents[log.row_of_entry[entry[log.click[entry]]]].tolist():
        clicked = {"object": {"object_id": document}}
        events.append({"action_name": "click", "query_id": f"s{number}", "event_attributes": clicked})

(folder / "queries.ndjson").write_text("\n".join(map(json.dumps, searches)))
(folder / "events.ndjson").write_text("\n".join(map(json.dumps, events)))
named = fultr.read_log(
    {
        "impression_id": log.impression_of_entry,
        "query_id": queries[log.lists[log.impression_of_entry]],
        "doc_id": documents[log.row_of_entry],
        "position": log.position,
        "click": log.click,
        **{f"feature_{k}": log.data.features[log.row_of_entry, k] for k in range(3)},
    }
)

# counts by query, document and position
frame = named.compact().to_frame().rename({"list_impressions": "query_impressions"})
frame.drop("list").write_parquet(folder / "counts.parquet")

# files for LightGBM: labels that are clicks, and beside them lengths of lists, positions and ids
row = log.row_of_entry
pairs = [" ".join(f"{k}:{value}" for k, value in enumerate(features)) for features in data.features[row]]
lines: dict[str, Any] = {
    "": [f"{click:d} {line}" for click, line in zip(log.click, pairs, strict=True)],
    ".query": np.diff(log.offsets),
    ".position": log.position,
    ".query_id": queries[log.lists],
    ".doc_id": documents[row],
}
for name, values in lines.items():
    (folder / f"train.txt{name}").write_text("".join(f"{value}\n" for value in values))

logs = {
    "long table": named.compact(),
    "one row for each impression": fultr.count(nested_table(sessions)),
    "counts": read_aggregated_log(folder / "counts.parquet"),
    "LightGBM": fultr.count(lightgbm_table(folder / "train.txt")),
    "User Behavior Insights": fultr.count(ubi_table(folder / "queries.ndjson", folder / "events.ndjson")),
}
for name, counts in logs.items():
    weight, exposure = counts.ips_weights(bias).sum(), counts.logged_exposure(bias).sum()
    print(f"{name:28} {counts}, IPS weights {weight:.1f}, exposure {exposure:.1f}")
