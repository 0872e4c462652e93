"""Small well-formed logs, lists and files of every format, from a random number generator."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from tests.fuzz.changes import (
    changed_bytes,
    changed_cells,
    changed_json,
    dumped,
    encoded,
    maybe_damaged,
    text,
)

Files = dict[str, bytes]
"""Content by name; the first file is the one that is read, and the others stand beside it."""

Row = dict[str, Any]

COLUMNS = ("impression_id", "query_id", "doc_id", "position", "click", "propensity", "group", "planted")
FEATURES = ("feature_1", "feature_2")


def log_rows(rng: Random) -> list[Row]:
    """Return the rows of a log of a few impressions."""
    of_text, longest = rng.random() < 0.5, rng.randrange(1, 4)
    documents = [(f"d{k}" if of_text else k + 7) for k in range(4)]
    optional = {name: rng.random() < 0.6 for name in ("propensity", "group", "planted", "features")}
    rows: list[Row] = []
    for impression in range(rng.randrange(1, 5)):
        query = rng.randrange(2)
        shown = rng.sample(range(4), k=rng.randrange(1, longest + 1))
        for place, item in enumerate(shown, start=1):
            row: Row = {
                "impression_id": impression + 1,
                "query_id": f"q{query}" if of_text else query,
                "doc_id": documents[item],
                "position": place if rng.random() < 0.9 or place == 1 else None,
                "click": 0,
            }
            row["click"] = int(row["position"] is not None and (rng.random() < 0.4 or not rows))
            if optional["propensity"]:
                row["propensity"] = None if row["position"] is None else 1 / place
            if optional["group"]:
                row["group"] = ("x", "y", None, "x")[item]
            if optional["planted"]:
                row["planted"] = int(place == 3 and row["position"] is not None)
            if optional["features"]:
                row |= {"feature_1": item / 2, "feature_2": float(query)}
            rows.append(row)
    return rows


def cells_of(rows: list[Row]) -> list[list[str]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [names, *(["" if row.get(name) is None else str(row[name]) for name in names] for row in rows)]


def csv_bytes(cells: list[list[str]], rng: Random, separator: str = ",") -> bytes:
    """Write a table as CSV in one of the usual ways."""
    out = io.StringIO()
    end = rng.choice(("\n", "\n", "\r\n"))
    writer = csv.writer(
        out,
        delimiter=separator,
        lineterminator=end,
        quoting=csv.QUOTE_ALL if rng.random() < 0.3 else csv.QUOTE_MINIMAL,
    )
    for row in cells:
        if rng.random() < 0.05:  # as others write it, without quotes
            out.write(separator.join(row) + end)
        else:
            writer.writerow(row)
    made = out.getvalue()
    made = made.removesuffix(end) if rng.random() < 0.1 else made
    return maybe_damaged(encoded(rng.choice(("", "", "", "\ufeff")) + made), rng)


def csv_log(rng: Random) -> Files:
    cells = changed_cells(cells_of(log_rows(rng)), rng)
    content = csv_bytes(cells, rng)
    if rng.random() < 0.2:
        about = {
            "kind": "click-log",
            "version": 1,
            "group_names": ["x", "y"],
            "text_ids": [],
            "empties_dropped": False,
        }
        features = [name.removeprefix("feature_") for name in cells[0] if name.startswith("feature_")]
        about |= {"feature_names": features, "origin": {}, "invented": []}
        content = b"# fultr " + dumped(changed_json(about, rng), rng) + b"\n" + content
    return {"log.csv": content}


def ndjson_log(rng: Random) -> Files:
    rows = changed_json(log_rows(rng), rng)
    rows = rows if isinstance(rows, list) else [rows]
    return {
        "log.ndjson": maybe_damaged(b"\n".join(dumped(row, rng).replace(b"\n", b" ") for row in rows), rng)
    }


UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises for values that have no common type."""

TYPES: dict[type, tuple[Any, ...]] = {
    int: (
        pa.int64(),
        pa.int32(),
        pa.int8(),
        pa.uint64(),
        pa.float64(),
        pa.float32(),
        pa.bool_(),
        pa.string(),
    ),
    float: (pa.float64(), pa.float32(), pa.float16(), pa.decimal128(10, 3), pa.string()),
    str: (
        pa.string(),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.binary(),
        pa.string_view(),
    ),
    bool: (pa.bool_(),),
}


def arrow_table(rows: list[Row], rng: Random) -> pa.Table:
    """Return rows as a table with columns of the usual types, or of others."""
    names = list(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))
    columns: dict[str, Any] = {}
    for name in names:
        values = [row.get(name) for row in rows if isinstance(row, dict)]
        first = next((value for value in values if value is not None), None)
        kind = rng.choice(TYPES.get(type(first), (None,))) if rng.random() < 0.15 else None
        columns[encoded(name).decode(errors="replace")] = _column(values, kind)
    return pa.table(columns)


def _column(values: list[Any], kind: Any) -> pa.Array:
    """Return values as a column of a type, or else of their own, or else as text."""
    for given, wanted in ((values, kind), (values, None)):
        try:
            made = pa.array(given, wanted)
        except UNFIT:
            continue
        if "struct<>" not in str(made.type):  # which Parquet cannot hold
            return made
    return pa.array([repr(value) for value in values])


def _bare_rows(rng: Random) -> list[Row]:
    rows = changed_json(log_rows(rng), rng)
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return rows or [{"click": 1}]


def parquet_bytes(table: pa.Table, rng: Random) -> bytes:
    out = io.BytesIO()
    parquet.write_table(
        table, out, compression=rng.choice(("none", "snappy", "zstd")), use_dictionary=rng.random() < 0.5
    )
    return out.getvalue()


def arrow_bytes(table: pa.Table, _rng: Random | None = None) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def with_metadata(table: pa.Table, rng: Random) -> pa.Table:
    """Add what fultr, or pandas, says of a table, perhaps changed."""
    about = {
        "version": 1,
        "kind": "click-log",
        "group_names": ["x", "y"],
        "invented": [],
        "text_ids": ["query_id"],
    }
    given = {b"fultr": dumped(changed_json(about, rng), rng)}
    if rng.random() < 0.3:
        given = {b"pandas": dumped(changed_json({"index_columns": ["click"]}, rng), rng)}
    return table.replace_schema_metadata(given)


def table_log(name: str, write: Callable[[pa.Table, Random], bytes]) -> Callable[[Random], Files]:
    """Return a maker of logs in a binary format."""

    def make(rng: Random) -> Files:
        table = arrow_table(_bare_rows(rng), rng)
        table = with_metadata(table, rng) if rng.random() < 0.15 else table
        return {name: maybe_damaged(write(table, rng), rng, 0.4)}

    return make


def damaged_copies(seeds: list[Files], share: float = 1.0) -> Callable[[Random], Files]:
    """Return a maker of damaged copies of files."""

    def make(rng: Random) -> Files:
        name, content = next(iter(rng.choice(seeds).items()))
        return {name: maybe_damaged(content, rng, share)}

    return make


def changed_tables(seeds: list[tuple[str, pa.Table]], key: bytes = b"fultr") -> Callable[[Random], Files]:
    """Return a maker of copies of our own Parquet files: cells, columns, metadata or bytes are changed."""

    def make(rng: Random) -> Files:
        name, table = rng.choice(seeds)
        kind = rng.random()
        if kind < 0.45:
            about = json.loads(table.schema.metadata[key])
            metadata = {**table.schema.metadata, key: dumped(changed_json(about, rng), rng)}
            table = table.replace_schema_metadata(metadata)
        elif kind < 0.9:
            table = _with_other_column(table, rng)
        return {name: maybe_damaged(parquet_bytes(table, rng), rng, 1.0 if kind >= 0.9 else 0.05)}

    return make


def _with_other_column(table: pa.Table, rng: Random) -> pa.Table:
    index = rng.randrange(table.num_columns)
    if rng.random() < 0.15:
        return table.remove_column(index)
    name, values = table.schema.names[index], table.column(index).to_pylist()
    changed = changed_json(values, rng, changes=1)
    for kind in (table.schema.types[index], None, pa.string()):
        try:
            column = pa.array(changed if kind != pa.string() else list(map(str, values)), kind)
            return table.set_column(index, name, column) if len(column) == table.num_rows else table.slice(1)
        except UNFIT:
            continue
    return table


def letor(rng: Random) -> Files:
    """Return LETOR text."""
    rows = []
    for _ in range(rng.randrange(1, 5)):
        pairs = [f"{k}:{rng.choice(('0.5', '1', '-2e-3', '0'))}" for k in range(1, rng.randrange(1, 4))]
        rows.append([str(rng.randrange(3)), f"qid:{rng.randrange(1, 3)}", *pairs])
    separator = rng.choice((" ", " ", "\t", "  "))
    ends = ["", "", " # docid = d7", "# a", " #"]
    lines = [separator.join(row) + rng.choice(ends) for row in changed_cells(rows, rng)]
    return {"data.txt": maybe_damaged(encoded("\n".join(lines) + rng.choice(("\n", "\n", "", "\r\n"))), rng)}


def labelled(rng: Random) -> Files:
    """Return labelled lists as CSV."""
    rows: list[Row] = [
        {"query_id": number // 3, "doc_id": number, "relevance": rng.randrange(2), "group": "xy"[number % 2]}
        | {"age": number / 2, "price": -1.5}
        for number in range(rng.randrange(1, 7))
    ]
    return {"lists.csv": csv_bytes(changed_cells(cells_of(rows), rng), rng)}


def aggregated(rng: Random) -> Files:
    """Return counts of queries, documents and positions as CSV."""
    rows: list[Row] = []
    with_total, with_features = rng.random() < 0.5, rng.random() < 0.5
    for query in range(rng.randrange(1, 3)):
        first, second = rng.randrange(1, 90), rng.randrange(0, 20)
        for item, place, shown in ((0, 1, first), (1, 1, second), (0, 2, second), (1, 2, first)):
            row: Row = {"query_id": f"q{query}", "doc_id": item, "position": place, "impressions": shown}
            row["clicks"] = rng.randrange(shown + 1) if rows else shown
            row |= {"query_impressions": first + second} if with_total else {}
            row |= {"group": "xy"[item], "feature_1": item / 2} if with_features else {}
            rows.append(row)
    return {"counts.csv": csv_bytes(changed_cells(cells_of(rows), rng), rng)}


def nested(rng: Random) -> Files:
    """Return impressions with lists as JSON lines."""
    rows: list[Row] = []
    for number in range(rng.randrange(1, 4)):
        shown = rng.sample(range(4), k=rng.randrange(1, 4))
        rows.append(
            {
                "query_id": f"q{number % 2}",
                "session": number,
                "doc_ids": [f"d{item}" for item in shown],
                "clicks": [int(rng.random() < 0.5 or not rows) for _ in shown],
                "places": [place + 1 for place in range(len(shown))],
                "owner": [("x", "y", None, "x")[item] for item in shown],
            }
        )
    changed = changed_json(rows, rng)
    changed = changed if isinstance(changed, list) else [changed]
    lines = b"\n".join(dumped(row, rng).replace(b"\n", b" ") for row in changed)
    return {"log.ndjson": maybe_damaged(lines, rng)}


def ubi(rng: Random) -> Files:
    """Return searches and events as JSON lines."""
    records: list[Row] = []
    for number in range(rng.randrange(1, 4)):
        hits: list[Any] = rng.sample(["a", "b", "c", 7], k=rng.randrange(0, 4) if records else 2)
        search = f"s{number}"
        query = {"query_id": search, "user_query": rng.choice(("tv", "7")), "query_response_hit_ids": hits}
        records.append({"_source": query} if rng.random() < 0.1 else query)
        for place, hit in enumerate(hits, start=1):
            action = rng.choice(("click", "click", "impression", "add_to_cart")) if number else "click"
            about = {"object": {"object_id": hit}, "position": {"ordinal": place}}
            records.append({"action_name": action, "query_id": search, "event_attributes": about})
    changed = changed_json(records, rng)
    changed = changed if isinstance(changed, list) else [changed]
    lines = b"\n".join(dumped(row, rng).replace(b"\n", b" ") for row in changed)
    return {"ubi.ndjson": maybe_damaged(lines, rng, 0.05)}


def lightgbm(rng: Random) -> Files:
    """Return data for LightGBM, as pairs or as columns, with the files beside it."""
    lengths = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 3))]
    size = sum(lengths)
    labels = [1, *(rng.randrange(2) for _ in range(size - 1))]
    form = rng.choice((" ", " ", ",", "\t"))
    if form == " ":
        rows = [[str(label), f"0:{k / 2}", f"2:{k}"] for k, label in enumerate(labels)]
    else:
        rows = [[str(label), str(k / 2), str(k)] for k, label in enumerate(labels)]
        rows = [["label", "age", "price"], *rows] if rng.random() < 0.5 else rows
    beside: dict[str, list[Any]] = {"query": lengths, "position": [k + 1 for n in lengths for k in range(n)]}
    optional: dict[str, list[Any]] = {
        "query_id": [f"q{k}" for k in range(len(lengths))],
        "doc_id": [f"d{k}" for k in range(size)],
        "item_group": ["xy"[k % 2] for k in range(size)],
    }
    beside |= {name: values for name, values in optional.items() if rng.random() < 0.4}
    changed = changed_cells(rows, rng) if rng.random() < 0.5 else rows
    files = {"train.txt": encoded("".join(form.join(row) + "\n" for row in changed))}
    for name, values in beside.items():
        lines = [[str(value)] for value in values]
        lines = changed_cells(lines, rng) if rng.random() < 0.15 else lines
        if rng.random() < 0.98:
            files[f"train.txt.{name}"] = encoded("".join(f"{''.join(line)}\n" for line in lines))
    name = rng.choice(list(files))
    return {**files, name: maybe_damaged(files[name], rng)}


def table_to_rank(rng: Random) -> Files:
    """Return items to be ranked, as CSV."""
    rows: list[Row] = [
        {
            "query_id": k // 3,
            "doc_id": k,
            "group": "xy"[k % 2],
            "age": k / 2,
            "price": -1.5,
            "note": text(rng),
        }
        for k in range(rng.randrange(1, 7))
    ]
    return {"items.csv": csv_bytes(changed_cells(cells_of(rows), rng), rng)}


def changed_objects(name: str, seeds: list[Any], share: float = 0.1) -> Callable[[Random], Files]:
    """Return a maker of JSON files that differ a little from well-formed ones."""

    def make(rng: Random) -> Files:
        return {name: maybe_damaged(dumped(changed_json(rng.choice(seeds), rng), rng), rng, share)}

    return make


def bytes_of(seeds: list[bytes], name: str) -> Callable[[Random], Files]:
    """Return a maker of damaged bytes."""
    return lambda rng: {name: changed_bytes(rng.choice(seeds), rng)}
