"""Bad input in the layouts of others, through the library and through the command.

Each case gets one line that names the file and, where there is one, the row, the column and the value.
"""

# ruff: noqa: E501 - tables of cases read best as tables

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fultr import InputError, read_log
from fultr.logs import lightgbm_table, nested_table, read_aggregated_log, ubi_table
from tests.commands import refusal, result_of
from tests.log_formats import GOOD_COUNTS, event, positions_by_document, small_ubi, write_lines

STRAYS = {
    "action is an object": (
        event("s1", {"click": 1}, "a", 1),
        "{'click': 1}",
        "name of an action",
        "action_name",
    ),
    "action is a list": (event("s1", ["click"], "a", 1), "['click']", "name of an action", "action_name"),
    "empty query": ({"query_id": "s5", "user_query": ""}, "''", "user typed", "user_query"),
    "unknown search": (event("s9", "click", "a", 1), "'s9'", "no such search", "query_id"),
    "unknown document": (event("s1", "click", "z", 1), "'z'", "not in the response", "object_id"),
    "no document": ({"action_name": "click", "query_id": "s1"}, None, "not in the response", "object_id"),
    "no query": ({"query_id": "s5", "query_response_hit_ids": ["a"]}, None, "user typed", "user_query"),
    "half a character": ({"query_id": "s5", "user_query": "\ud800"}, None, "user typed", "user_query"),
    "another response": (
        {"query_id": "s1", "user_query": "tv", "query_response_hit_ids": ["a"]},
        "'s1'",
        "stands in row 1 already",
        "query_id",
    ),
    "document twice": (
        {"query_id": "s5", "user_query": "tv", "query_response_hit_ids": ["a", "a"]},
        "['a', 'a']",
        "twice in the response",
        "query_response_hit_ids",
    ),
}


ORDINAL = "position.ordinal"
EVENT_STRAYS = {
    "another position": (event("s1", "impression", "a", 3), "3", "at another position", ORDINAL),
    "position taken": (event("s1", "impression", "c", 2), "2", "another document", ORDINAL),
    "no position": (event("s1", "impression", "c", None), None, "no event says where", ORDINAL),
    "position is text": (event("s1", "impression", "c", "third"), "'third'", "integer", ORDINAL),
    "position is negative": (event("s1", "impression", "c", -2), "-2", "integer", ORDINAL),
    "position is a fraction": (event("s1", "impression", "c", 1.5), "1.5", "integer", ORDINAL),
}
PLACED = {
    "response": [{"a": 1, "b": 2, "c": 3}, {"b": 1, "a": 2}],
    "events": [{"a": 1, "b": 2, "c": 0}, {"b": 1, "a": 0}],
}


@pytest.mark.parametrize(
    ("positions", "stray", "value", "part", "column"),
    [("response", *case) for case in STRAYS.values()] + [("events", *case) for case in EVENT_STRAYS.values()],
    ids=[*STRAYS, *EVENT_STRAYS],
)
def test_what_cannot_be_placed_is_named_or_skipped(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    positions: Any,
    stray: Any,
    value: str | None,
    part: str,
    column: str,
) -> None:
    queries, events = small_ubi()
    path = write_lines([*queries, *events, stray], tmp_path / "ubi.ndjson")
    command = ("convert", "--from", "ubi", "--positions", positions, path, tmp_path / "out.parquet")
    line = refusal(capsys, *command)
    assert f"{path}, row 8, column" in line
    assert part in line
    assert f"{column}'" in line
    if value is not None:
        assert f"(got {value})" in line
    log = read_log(ubi_table(path, positions=positions, on_stray="skip"))
    assert positions_by_document(log)[:2] == PLACED[positions]
    assert log.origin["skipped"] == 1
    code, _, err = result_of(capsys, *command, "--skip-strays")
    assert code == 0
    assert "1 events or searches could not be placed" in err


def check_refused(
    capsys: pytest.CaptureFixture[str],
    path: Path,
    read: Callable[[], object],
    options: Sequence[object],
    place: str,
    part: str,
    value: str | None = None,
) -> None:
    """The library and the command refuse a file with the same line, and nothing is written."""
    with pytest.raises(InputError) as caught:
        read()
    out = path.parent / "out.parquet"
    line = refusal(capsys, "convert", "--from", *options, path, out, unchanged=path.parent)
    assert line.strip() == f"fultr: {caught.value.in_shell()}"
    error = str(caught.value)
    assert error.startswith(f"{path.parent}/{place}")
    assert part in error
    if value is not None:
        assert error.endswith(f"(got {value})")


def place_of(path: Path, row: int | None, column: str | None) -> str:
    """How an error about a row and a column of a file starts."""
    parts = (path.name, f"row {row}" if row is not None else "", f"column '{column}'" if column else "")
    return ", ".join(filter(None, parts)) + ": "


GOOD_NESTED: dict[str, list[Any]] = {
    "query_id": ["a", "a"],
    "doc_ids": [["x", "y"], ["y", "x", "z"]],
    "clicks": [[0, 1], [1, 0, 0]],
    "places": [[1, 2], [1, 2, None]],
    "owner": [["l", None], [None, "l", "r"]],
    "vectors": [[[1.0], [2.0]], [[2.0], [1.0], [3.0]]],
    "session": [1, 2],
}
NESTED = [
    ("no column", {"clicks": None}, None, "clicks", None, "the column is missing"),
    ("no lists", {"clicks": ["0 1", "1 0 0"]}, 1, "clicks", "'0 1'", "must be lists, not string"),
    ("null list", {"doc_ids": [["x", "y"], None]}, 2, "doc_ids", None, "the list is missing"),
    ("null clicks", {"clicks": [None, [1, 0, 0]]}, 1, "clicks", None, "a list of zeros"),
    ("empty list", {"doc_ids": [["x", "y"], []]}, 2, "doc_ids", None, "the list is empty"),
    ("other length", {"clicks": [[0, 1], [1, 0]]}, 2, "clicks", "[1, 0]", "2 values, but doc_ids has 3"),
    ("other places", {"places": [[1], [1, 2, 3]]}, 1, "places", "[1]", "1 values, but doc_ids has 2"),
    ("click is two", {"clicks": [[0, 1], [2, 0, 0]]}, 2, "clicks", "2", "must be 0 or 1"),
    ("click is null", {"clicks": [[0, 1], [1, None, 0]]}, 2, "clicks", None, "must be 0 or 1"),
    ("unseen click", {"clicks": [[0, 1], [1, 0, 1]]}, 2, "clicks", "1", "not shown"),
    ("position zero", {"places": [[1, 2], [0, 1, 2]]}, 2, "places", "0", "from 1 to"),
    ("position twice", {"places": [[1, 2], [1, 1, 2]]}, 2, "places", "1", "is taken"),
    ("document twice", {"doc_ids": [["x", "y"], ["x", "x", "z"]], "owner": [["l"] * 2, ["l"] * 3],
      "vectors": [[[1.0]] * 2, [[1.0]] * 3]}, 2, "doc_ids", "'x'", "same impression already"),
    ("document null", {"doc_ids": [["x", None], ["y", "x", "z"]]}, 1, "doc_ids", None, "an id is missing"),
    ("other group", {"owner": [["l", None], ["r", "l", "r"]]}, 2, "owner", None, "differs"),
    ("other features", {"vectors": [[[1.0], [2.0]], [[5.0], [1.0], [3.0]]]}, 2, "vectors[0]", None, "differs"),
    ("ragged features", {"vectors": [[[1.0], [2.0]], [[2.0], [1.0, 3.0], [3.0]]]}, 2, "vectors", None, "features, but"),
    ("feature is nan", {"vectors": [[[1.0], [2.0]], [[2.0], [1.0], [float("nan")]]]}, 2, "vectors[0]", "nan", "finite"),
    ("features null", {"vectors": [[[1.0], None], [[2.0], [1.0], [3.0]]]}, 1, "vectors", None, "missing"),
    ("same impression", {"session": [1, 1]}, 2, "session", "1", "one row is one impression"),
    ("no clicks", {"clicks": [[0, 0], [0, 0, 0]]}, None, "clicks", None, "no clicks"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "row", "column", "value", "part"), [case[1:] for case in NESTED], ids=[c[0] for c in NESTED]
)
def test_bad_nested_rows_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    row: int | None,
    column: str,
    value: str | None,
    part: str,
) -> None:
    table = {name: values for name, values in {**GOOD_NESTED, **change}.items() if values is not None}
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(table), path)
    names: dict[str, Any] = {
        "positions": "places",
        "groups": "owner",
        "features": "vectors",
        "impression": "session",
    }
    options = [f"--column={name}={column_}" for name, column_ in names.items()]
    read = lambda: read_log(nested_table(path, **names))  # noqa: E731
    check_refused(capsys, path, read, ("nested", *options), place_of(path, row, column), part, value)


COUNTS = [
    ("more clicks", {"clicks": [30, 11, 2]}, 2, "clicks", "11", "more clicks than the 10 impressions"),
    ("negative", {"impressions": [90, -1, 10]}, 2, "impressions", "-1", "integer, 0 or more"),
    ("fraction", {"clicks": [30, 0.5, 2]}, 2, "clicks", "0.5", "integer, 0 or more"),
    ("missing", {"clicks": [30, None, 2]}, 2, "clicks", None, "integer, 0 or more"),
    ("text", {"clicks": ["30", "few", "2"]}, 2, "clicks", "'few'", "must be a number"),
    ("no position", {"position": [1, None, 2]}, 2, "position", None, "needs a position"),
    ("position zero", {"position": [1, 0, 2]}, 2, "position", "0", "from 1 to"),
    ("no document", {"doc_id": ["x", None, "x"]}, 2, "doc_id", None, "an id is missing"),
    ("other group", {"group": ["l", "r", "r"]}, 3, "group", None, "differs"),
    ("other features", {"feature_1": [1.0, 2.0, 3.0]}, 3, "feature_1", None, "differs"),
    ("other total", {"query_impressions": [100, 100, 99]}, 3, "query_impressions", None, "differs"),
    ("small total", {"query_impressions": [99, 99, 99]}, None, "query_id", "'a'", "100 impressions at position 1, but query_impressions says that it had 99"),
    ("deep", {"query_impressions": None, "impressions": [1, 1, 10], "clicks": [1, 1, 2]}, None, "query_id", "'a'", "10 impressions at position 2, but 2"),
    ("document", {"query_impressions": None, "impressions": [95, 1, 90], "clicks": [30, 1, 2]}, None, "query_id", "'a'", "185 impressions of document 'x', but 96"),
    ("no clicks", {"clicks": [0, 0, 0]}, None, "clicks", None, "no clicks"),
    ("no rows", {name: [] for name in GOOD_COUNTS}, None, None, None, "no rows"),
]  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("change", "row", "column", "value", "part"), [case[1:] for case in COUNTS], ids=[c[0] for c in COUNTS]
)
def test_bad_counts_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ending: str,
    change: dict[str, Any],
    row: int | None,
    column: str | None,
    value: str | None,
    part: str,
) -> None:
    table = {name: values for name, values in {**GOOD_COUNTS, **change}.items() if values is not None}
    path = tmp_path / f"counts.{ending}"
    if ending == "csv":
        pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in table.items()}).to_csv(
            path, index=False
        )
    else:
        pq.write_table(pa.table(table), path)
    # a count that is none is shown as the file has it, which is text in a CSV file
    shown = f"'{value}'" if value and ending == "csv" and part == "integer, 0 or more" else value
    place = place_of(path, None if row is None else row + (ending == "csv"), column)
    check_refused(capsys, path, lambda: read_aggregated_log(path), ("aggregated",), place, part, shown)


MANY_QUERIES = [f"q{n}" for n in range(1500)]


@pytest.mark.parametrize(
    ("queries", "column"),
    [(["a"] * 1500, "impressions"), (MANY_QUERIES, "impressions"), (MANY_QUERIES, "query_impressions")],
    ids=["one query", "many queries", "many searches"],
)
def test_counts_that_cannot_be_added_up_are_refused(queries: list[str], column: str) -> None:
    table: dict[str, Any] = {
        "query_id": queries,
        "doc_id": list(range(1500)),
        "position": [1] * 1500,
        "impressions": [1] * 1500,
        "clicks": [1] * 1500,
    }
    with pytest.raises(InputError, match="add up to 9007199254740992 impressions or more") as caught:
        read_aggregated_log({**table, column: [2**53 - 1] * 1500})
    assert caught.value.column == "query_id"
    assert caught.value.value == queries[1]


LIGHTGBM = [
    ("graded", {"": "2 1:1\n0 1:2\n"}, "train.txt, row 1, column 'label'", "must be 0 or 1 (got 2)"),
    ("no number", {"": "1 1:1\n0 1:two\n"}, "train.txt, row 2, column '1'", "must be a number (got 'two')"),
    ("first no number", {"": "1 0:1\n\n0 0:two\n"}, "train.txt, row 3, column '0'", "must be a number (got 'two')"),
    ("feature twice", {"": "1 1:1\n0 1:2 1:3\n"}, "train.txt, row 2", "stands twice"),
    ("no feature value", {"": "1,\n0,2\n"}, "train.txt, row 1, column '1'", "finite"),
    ("ragged", {"": "1,2\n0,2,3\n"}, "train.txt, row 2", "the row has 3 values, but there are 2 columns"),
    ("blank lines", {"": "\n\nlabel,a\n1,2\n\n0,x\n"}, "train.txt, row 6, column 'a'", "must be a number"),
    ("some queries", {"": "1 qid:1 1:1\n0 1:2\n"}, "train.txt, column 'qid'", "others have not"),
    ("query changes", {"": "1 qid:1 1:1\n0 qid:2 1:2\n"}, "train.txt, row 2, column 'qid'", "of the same impression in row 1 differs"),
    ("no lists", {".query": None}, "train.txt:", "train.txt.query should stand beside it"),
    ("no positions", {".position": None}, "train.txt:", "train.txt.position should stand beside it"),
    ("length zero", {".query": "2\n0\n"}, "train.txt.query, row 2", "1 or more (got '0')"),
    ("length text", {".query": "two\n"}, "train.txt.query, row 1", "(got 'two')"),
    ("other rows", {".query": "3\n"}, "train.txt.query:", "3 rows together, but train.txt has 2"),
    ("few positions", {".position": "1\n"}, "train.txt.position:", "has 1 lines, but there must be 2"),
    ("position text", {".position": "1\nlow\n"}, "train.txt.position, row 2, column 'position'", "(got 'low')"),
    ("position twice", {".position": "1\n1\n"}, "train.txt.position, row 2, column 'position'", "list already (got 1)"),
    ("document twice", {".doc_id": "a\na\n"}, "train.txt.doc_id, row 2, column 'doc_id'", "already (got 'a')"),
    ("no document", {".doc_id": "a\n\n"}, "train.txt.doc_id, row 2, column 'doc_id'", "an id is missing"),
    ("few groups", {".item_group": "a\n"}, "train.txt.item_group:", "has 1 lines, but there must be 2"),
    ("no clicks", {"": "0 1:1\n0 1:2\n"}, "train.txt, column 'label'", "no clicks"),
    ("weights", {".weight": "1\n2\n"}, "train.txt.weight, column 'weights'", "say what they are"),
    ("no text", {".query": b"\xff\xfe"}, "train.txt.query:", "UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "place", "part"), [case[1:] for case in LIGHTGBM], ids=[c[0] for c in LIGHTGBM]
)
def test_bad_files_for_lightgbm_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], place: str, part: str
) -> None:
    for name, text in {"": "1 1:1\n0 1:2\n", ".query": "2\n", ".position": "1\n2\n", **change}.items():
        if text is not None:
            encoded = text if isinstance(text, bytes) else text.encode()
            (tmp_path / f"train.txt{name}").write_bytes(encoded)
    path = tmp_path / "train.txt"
    check_refused(capsys, path, lambda: read_log(lightgbm_table(path)), ("lightgbm",), place, part)


BAD_LINES = {
    "no JSON": ('{"query_id": ', "no JSON object"),
    "a list": ("[1, 2]", "must be one JSON object"),
    "deep": ("[" * 100_000, "no JSON object"),
    "hits are text": ('{"query_id": "s", "user_query": "q", "query_response_hit_ids": "a"}', "a list of ids"),
    "hits are objects": ('{"query_id": "s", "user_query": "q", "query_response_hit_ids": [{}]}', "text or integers"),
    "no id": ('{"user_query": "q", "query_response_hit_ids": ["a"]}', "text or integers"),
    "id is true": ('{"query_id": true, "user_query": "q"}', "text or integers"),
    "not UTF-8": (b'{"query_id": "\xff"}', "no JSON object"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "part"), BAD_LINES.values(), ids=BAD_LINES)
def test_bad_records_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str | bytes, part: str
) -> None:
    queries, events = small_ubi()
    path = write_lines([*queries, *events], tmp_path / "ubi.ndjson")
    path.write_bytes(path.read_bytes() + (line if isinstance(line, bytes) else line.encode()) + b"\n")
    check_refused(capsys, path, lambda: read_log(ubi_table(path)), ("ubi",), "ubi.ndjson, row 8", part)


def test_other_mistakes_with_searches_and_events(tmp_path: Path) -> None:
    queries, events = small_ubi()
    first = write_lines(queries, tmp_path / "q.ndjson")
    bare_queries = [{**query, "query_response_hit_ids": None} for query in queries]
    empty = write_lines(bare_queries, tmp_path / "empty.ndjson")
    clicks = write_lines(events, tmp_path / "e.ndjson")
    with pytest.raises(InputError, match="no search has results; if events have impressions, take positions"):
        read_log(ubi_table(empty, clicks))
    with pytest.raises(InputError, match="q.ndjson, column 'click': the log has no clicks"):
        read_log(ubi_table(first))
    with pytest.raises(InputError, match="no impression or click of any search"):
        read_log(ubi_table(first, positions="events"))
    with pytest.raises(InputError, match="column 'query_id': the column is missing; it is no UBI table"):
        read_log(ubi_table({"user_query": ["a"]}))
    for mistake in (
        {"positions": "screen"},
        {"on_stray": "drop"},
        {"first_position": 2, "positions": "events"},
    ):
        with pytest.raises(InputError, match=next(iter(mistake))):
            read_log(ubi_table(first, clicks, **mistake))
    mixed = [{**queries[0], "timestamp": 17}, {**queries[1], "timestamp": "2024-05-01"}]
    with pytest.raises(InputError, match="column 'timestamp'"):
        read_log(ubi_table(write_lines(mixed, tmp_path / "m.ndjson"), clicks))
