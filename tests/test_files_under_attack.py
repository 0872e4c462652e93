"""Files that were made to mislead: each test is named after a fault that the readers once had."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fultr
from fultr import InputError, RankingDataset, count, merge, read_dataset, read_letor, read_log
from fultr.data.columns import NUMBER
from fultr.logs import lightgbm_table, nested_table
from fultr.logs.reading import LogOptions
from tests.commands import refusal, result_of

LOG: dict[str, list[Any]] = {
    "impression_id": [1, 1, 2, 2],
    "query_id": ["q"] * 4,
    "doc_id": ["a", "b", "a", "b"],
    "position": [1, 2, 1, 2],
    "click": [0, 1, 1, 0],
    "feature_1": [1.0, 2.0, 1.0, 2.0],
}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_ids_with_a_nul_byte_are_not_cut_off(tmp_path: Path, ending: str) -> None:
    table = {**LOG, "query_id": ["q\0a", "q\0a", "q\0b", "q\0b"], "doc_id": ["d\0a", "d\0b"] * 2}
    log = read_log(table)
    assert log.data.query_id is not None
    assert log.data.query_id.tolist() == ["q\0a", "q\0b"]
    fultr.write_log(log, tmp_path / f"log.{ending}")
    counts = count(tmp_path / f"log.{ending}")
    fultr.write_counts(counts, tmp_path / "counts.parquet")
    again = merge(fultr.read_counts(tmp_path / "counts.parquet"), count(table))
    for data in (counts.data, again.data):
        assert data.query_id is not None
        assert data.query_id.tolist() == ["q\0a", "q\0b"]
        assert data.doc_id is not None
        assert data.doc_id.tolist() == ["d\0a", "d\0b"] * 2
    assert count({**LOG, "device": ["x\0a", "x\0a", "x\0b", "x\0b"]}, context="device").context_values == (
        "x\0a",
        "x\0b",
    )
    data = RankingDataset(np.ones((2, 1)), [0, 1, 2], group=["g\0a", "g\0b"], query_id=["q\0a", "q\0b"])
    assert data.group_names == ("g\0a", "g\0b")
    assert data.query_codes.tolist() == [0, 1]


HEAD = "impression_id,query_id,doc_id,position,click,group\n"


@pytest.mark.parametrize(("column", "row"), [("doc_id", '1,q,"",1,0,x'), ("query_id", '1,"",a,1,0,x')])
def test_quoted_empty_fields_are_no_ids(tmp_path: Path, column: str, row: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{HEAD}{row}\n1,q,b,2,1,x\n")
    with pytest.raises(InputError, match=rf"log.csv, row 2, column '{column}': an id is missing"):
        read_log(path)
    with pytest.raises(InputError, match=f"row 2, column '{column}': an id is missing"):
        count({**LOG, column: ["b", "", "b", "c"]})
    with pytest.raises(InputError, match="row 2, column 'doc_id': an id is missing"):
        RankingDataset(np.ones((2, 1)), [0, 2], doc_id=["a", ""])


def test_quoted_empty_fields_are_unknown_groups_and_no_positions(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f'{HEAD}1,q,a,"",0,""\n1,q,b,1,1,x\n')
    log = read_log(path)
    assert log.data.group_names == ("x",)
    assert log.data.group.tolist() == [-1, 0]
    assert log.position.tolist() == [0, 1]
    assert read_log({**LOG, "group": ["", "x"] * 2}).data.group_names == ("x",)
    assert RankingDataset(np.ones((2, 1)), [0, 2], group=["", "x"]).group_names == ("x",)
    with pytest.raises(InputError, match="column 'group_names'.*none be empty"):
        RankingDataset(np.ones((2, 1)), [0, 2], group=[0, 1], group_names=["", "x"])


def test_counts_that_overflow_are_refused() -> None:
    counts = count(LOG)
    many = replace(counts, impressions=counts.impressions << 49, cells=counts.cells)
    with pytest.raises(InputError, match="column 'impressions': counts add up to 9007199254740992 items"):
        merge(*[many] * 5000)
    with pytest.raises(InputError, match="too many to be exact"):
        replace(counts, impressions=counts.impressions << 60)


def test_numbers_of_many_digits_take_linear_time() -> None:
    # a repeat that never gives back what it matched cannot try a text in more than one way
    repeats = re.findall(
        r"(?<!\\)[+*](?![^[]*\])(\+?)", NUMBER.pattern.replace("[+-]", "S").replace(r"\.", "D")
    )
    assert repeats
    assert all(repeats)
    for digits in ("7" * 200_000, "0." + "7" * 200_000, "7" * 200_000 + "e-200000"):
        assert NUMBER.fullmatch(digits)
        for wrong in (digits + "x", digits + ".1.", digits + "e", digits + "e5e5"):
            assert not NUMBER.fullmatch(wrong)
    for text, is_number in [
        ("5.", 1),
        (".5", 1),
        (".", 0),
        ("+5e+3", 1),
        ("e3", 0),
        ("", 0),
        ("1_0", 0),
        ("٣", 0),
    ]:
        assert (NUMBER.fullmatch(text) is not None) == bool(is_number)


@pytest.mark.parametrize("tail", ["", "x", ".5.", "e99999999999"])
def test_numbers_of_many_digits_are_refused_in_a_line(tmp_path: Path, tail: str) -> None:
    number = "7" * 200_000 + tail
    letor, table = tmp_path / "data.txt", tmp_path / "log.csv"
    letor.write_text(f"1 qid:1 1:{number}\n0 qid:1 1:2\n")
    table.write_text(f"{HEAD}1,q,a,{number},0,x\n1,q,b,2,1,x\n")
    for error, read in (("row 1, column '1'", lambda: read_letor(letor)), ("row 2", lambda: count(table))):
        with pytest.raises(InputError, match=error) as caught:
            read()
        assert len(str(caught.value)) < 300


def test_one_large_index_of_letor_takes_no_gigabytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.txt"
    path.write_text("1 qid:1 1000000:1\n" + "0 qid:1 1:2\n" * 1400)
    problem = "row 68, column '1000000': 68 rows of 1000000 features need 0.3 GB"
    with pytest.raises(InputError, match=problem + ".*allow them by max_features=1000000"):
        read_letor(path)
    assert "allow them by --max-features of fultr convert 1000000" in refusal(capsys, "inspect", path)
    with pytest.raises(InputError, match=r"row 1, column '1000000': a feature index must lie in 1\.\.5"):
        read_letor(path, max_features=5)
    monkeypatch.setattr("fultr.data.letor.FREE_BYTES", 1000)
    path.write_text("1 qid:1 1000:1\n0 qid:1 1:2\n")
    with pytest.raises(InputError, match="row 1, column '1000': 1 rows of 1000 features"):
        read_letor(path)
    assert read_letor(path, max_features=1000).features.shape == (2, 1000)
    path.write_text("1 qid:1 3:1\n0 qid:1 1:2\n")
    out = tmp_path / "data.arrow"
    assert result_of(capsys, "convert", path, out, "--max-features", 3)[0] == 0
    assert read_dataset(out).features.shape == (2, 3)
    assert "must lie in 1..2" in refusal(capsys, "convert", path, out, "--max-features", 2)


def test_a_missing_column_among_many_makes_a_short_line() -> None:
    names = [f"a column with a long name, number {number}" for number in range(20_000)]
    many = dict.fromkeys(names, [1.0] * 4)
    cases: list[tuple[dict[str, Any], LogOptions]] = [(without("click"), {}), (LOG, {"features": ["salary"]})]
    for table, options in cases:
        with pytest.raises(InputError, match=r"the column is missing.*and \d+ more") as caught:
            count({**table, **many}, **options)
        assert len(str(caught.value)) < 2000
    groups = [f"group {number}" for number in range(5000)]
    with pytest.raises(InputError, match="unknown group; expected one of.*and 4980 more") as caught:
        count({**LOG, "group": ["none"] * 4}, group_names=groups)
    assert len(str(caught.value)) < 600


def without(column: str) -> dict[str, list[Any]]:
    return {name: values for name, values in LOG.items() if name != column}


@pytest.mark.parametrize("column", ["query_id", "doc_id", "impression_id", "group", "device"])
def test_parquet_text_that_is_not_utf8_is_refused(tmp_path: Path, column: str) -> None:
    of_bytes = pa.array([b"q\xff"] * 4)
    text = pa.StringArray.from_buffers(4, of_bytes.buffers()[1], of_bytes.buffers()[2])
    path = tmp_path / "log.parquet"
    for values in (text, text.dictionary_encode()):
        pq.write_table(pa.table({**LOG, column: values}), path)
        with pytest.raises(InputError, match=f"log.parquet, column '{column}': is damaged: .*UTF8"):
            count(path, context="device" if column == "device" else None)


def test_names_of_columns_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.ndjson"
    path.write_bytes(b'{"query_id": "a", "doc_ids": ["x"], "cli\xffcks": [1]}\n')
    with pytest.raises(InputError, match="log.ndjson.* not UTF-8 text"):
        count(nested_table(path))


def test_numbers_of_rows_in_parquet_that_are_wrong_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(LOG), path, store_schema=False)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    # an int64 is 0x16, a field of its type after the one before it, and 4 is 8 in its zigzag code
    places = [at for at in range(start, len(content)) if content[at - 1 : at + 1] == b"\x16\x08"]
    said = []
    for at in places:
        path.write_bytes(content[:at] + b"\x07" + content[at + 1 :])  # -4
        with suppress(InputError):
            assert int(count(path).impressions.sum()) == 2  # what was changed does not matter
            continue
        with pytest.raises(
            InputError, match="rows contradict each other|says that it has 4 rows, and has 0"
        ) as caught:
            count(path)
        said.append(str(caught.value))
    assert "contradict" in said[0]  # of the file, and of its row group at the end
    assert "contradict" in said[-1]
    assert "has 0" in said[1]


DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "9" * 400
METADATA: dict[str, str] = {
    "deep JSON": f'"origin": {{"a": {DEEP}}}',
    "deep kind": f'"kind": {DEEP}',
    "huge version": f'"version": {HUGE}',
    "columns that are not there": '"feature_names": ["1"], "group_columns": [0, 5]',
    "negative columns": '"feature_names": ["1"], "group_columns": [-1]',
    "huge columns": f'"feature_names": ["1"], "group_columns": [{HUGE}]',
    "columns beyond 63 bits": f'"feature_names": ["1"], "group_columns": [{2**63}]',
    "name of 300 characters": f'"items": {{"file": "{"x" * 300}", "sha256": "0"}}',
    "name is the folder above": '"items": {"file": "..", "sha256": "0"}',
    "name is a folder": '"items": {"file": ".", "sha256": "0"}',
    "name is empty": '"items": {"file": "", "sha256": "0"}',
    "name with a NUL byte": '"items": {"file": "a\\u0000b", "sha256": "0"}',
    "name in another folder": '"items": {"file": "../log.parquet", "sha256": "0"}',
    "half a character in a name": '"items": {"file": "\\ud800", "sha256": "0"}',
    "half a character in groups": '"group_names": ["\\ud800"]',
    "half a character in the source": '"source": "\\ud800"',
    "half a character in the origin": '"origin": {"a": "\\ud800"}',
    "huge examination": f'"position_bias": {{"values": [1, {HUGE}]}}',
    "huge noise": f'"noise": {{"eps_plus": {HUGE}, "eps_minus": 0}}',
    "noise is infinite": '"noise": {"eps_plus": Infinity, "eps_minus": 0}',
    "origin is huge": f'"origin": {{"a": {HUGE}}}',
    "origin is infinite": '"origin": {"a": 1e999}',
    "categories are no list": '"category_names": {"1": "ab"}',
    "categories are numbers": '"category_names": {"1": [5]}',
    "empty group": '"group_names": [""]',
    "files of other types": '"files": [{"name": 5, "rows": "x", "sha256": null}]',
    "facts are huge": f'"facts": {{"gaps": {HUGE}}}',
    "contexts twice": '"context_name": "device", "context_values": ["a", "a"]',
}
ONLY_COUNTS = ("files", "facts", "contexts")


@pytest.mark.parametrize("kind", ["click-log", "dataset", "counts"])
@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_fultr_cannot_have_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, case: str
) -> None:
    if case.startswith(ONLY_COUNTS) and kind != "counts":
        return
    path, log = tmp_path / "file.parquet", read_log(LOG)
    if kind == "counts":
        fultr.write_counts(log.compact(), path)
    elif kind == "dataset":
        fultr.write_dataset(replace(log.data, relevance=np.ones(2, np.float32)), path)
    else:
        fultr.write_log(log, path, features="columns")
    table = pq.read_table(path)
    own = json.loads(table.schema.metadata[b"fultr"])
    changed = re.findall(r'"(\w+)": ', METADATA[case])
    kept = {name: value for name, value in own.items() if name not in changed}
    text = json.dumps(kept)[:-1] + f", {METADATA[case]}}}"
    pq.write_table(table.replace_schema_metadata({b"fultr": text.encode()}), path)
    if "items" in changed and kind != "click-log" and "half" not in case:
        return  # only logs have tables of documents
    for command in (("inspect", path), ("convert", path, tmp_path / "out.parquet")):
        line = refusal(capsys, *command, unchanged=tmp_path)
        assert str(path) in line
        assert len(line) < 300


@pytest.mark.parametrize("blank", ["\n", "\n\r\n\n"])
@pytest.mark.parametrize("head", ["", "label,a\n"])
def test_a_blank_first_line_of_lightgbm_is_skipped(tmp_path: Path, blank: str, head: str) -> None:
    path = tmp_path / "train.csv"
    path.write_text(f"{blank}{head}1,2\n0,3\n")
    (tmp_path / "train.csv.query").write_text("2\n")
    (tmp_path / "train.csv.position").write_text("1\n2\n")
    log = read_log(lightgbm_table(path))
    assert log.click.tolist() == [True, False]
    assert log.data.features.tolist() == [[2], [3]]


def test_names_with_a_nul_byte_are_refused_before_they_are_written() -> None:
    problem = "the name of a column cannot have a NUL byte"
    with pytest.raises(InputError, match=problem):
        RankingDataset([[1.0]], [0, 1], feature_names=["a\0b"])
    with pytest.raises(InputError, match=problem):
        count({**LOG, "feature_a\0b": [1.0] * 4})
    with pytest.raises(InputError, match=problem):
        count(pl.DataFrame({**LOG, "feature_a\0b": [1.0] * 4}))


@pytest.mark.parametrize(
    "fields",
    [{"feature_names": ["\ud800"]}, {"doc_id": ["\ud800"]}, {"group": ["\ud800"]}, {"comment": ["\ud800"]}],
    ids=lambda fields: next(iter(fields)),
)
def test_text_that_no_file_can_hold_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be text in UTF-8"):
        RankingDataset([[1.0]], [0, 1], **fields)
