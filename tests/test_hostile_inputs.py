"""Bad input, through the library and through the command line.

Each case gets one clear line that names the file and, where there is one, the row, the column and the value;
exit code 2; and nothing is written.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fultr import InputError, datasets, read_letor, read_log
from fultr.cli.main import run
from tests.commands import refusal

GOOD: dict[str, list[Any]] = {
    "impression_id": [1, 1, 2, 2],
    "query_id": ["q", "q", "q", "q"],
    "doc_id": ["a", "b", "a", "b"],
    "position": [1, 2, 2, 1],
    "click": [0, 1, 0, 0],
    "propensity": [1.0, 0.5, 0.5, 1.0],
    "group": ["x", "y", "x", "y"],
    "feature_1": [1.0, 2.0, 1.0, 2.0],
}


def changed(column: str, row: int, value: Any) -> dict[str, list[Any]]:
    """The good table with one value changed; rows are counted from 1."""
    table = {name: list(values) for name, values in GOOD.items()}
    table[column][row - 1] = value
    return table


def without(column: str, **new: list[Any]) -> dict[str, list[Any]]:
    return {**{name: values for name, values in GOOD.items() if name != column}, **new}


# name of the case, the table, the row at fault (from 1, None if none is), the column, the value, a part of the line
TABLES: list[tuple[str, dict[str, list[Any]], int | None, str, str | None, str]] = [
    ("missing column", without("click"), None, "click", None, "the column is missing"),
    ("misspelt column", without("click", clik=[0, 1, 0, 0]), None, "click", None, "is 'clik' meant?"),
    ("position is text", changed("position", 2, "two"), 2, "position", "'two'", "must be a number"),
    ("position is zero", changed("position", 2, 0), 2, "position", "0", "integer from 1"),
    ("position is negative", changed("position", 3, -4), 3, "position", "-4", "integer from 1"),
    ("position is a fraction", changed("position", 3, 1.5), 3, "position", "1.5", "integer from 1"),
    ("position twice", changed("position", 2, 1), 2, "position", "1", "taken in row"),
    ("click is two", changed("click", 2, 2), 2, "click", "2", "must be 0 or 1"),
    ("click is text", changed("click", 1, "yes"), 1, "click", "'yes'", "must be a number"),
    ("click is missing", changed("click", 1, None), 1, "click", None, "must be 0 or 1"),
    ("click on an unseen item", changed("position", 2, None), 2, "click", "1", "not shown"),
    ("propensity above one", changed("propensity", 4, 1.01), 4, "propensity", "1.01", "at most 1"),
    ("propensity zero", changed("propensity", 4, 0.0), 4, "propensity", "0.0", "above 0"),
    ("propensity missing", changed("propensity", 4, None), 4, "propensity", "nan", "above 0"),
    ("document twice", {**changed("doc_id", 2, "a"), "group": ["x", "x", "x", "y"], "feature_1": [1, 1, 1, 2]}, 2, "doc_id", "'a'", "stands in row"),
    ("document missing", changed("doc_id", 2, None), 2, "doc_id", None, "an id is missing"),
    ("impression of two queries", changed("query_id", 2, "p"), 2, "query_id", None, "of the same impression in row"),
    ("feature is text", changed("feature_1", 3, "big"), 3, "feature_1", "'big'", "must be a number"),
    ("feature is infinite", changed("feature_1", 3, float("inf")), 3, "feature_1", "inf", "finite"),
    ("feature is missing", changed("feature_1", 3, None), 3, "feature_1", "nan", "finite"),
    ("feature beyond float32", changed("feature_1", 3, 1e39), 3, "feature_1", "1e+39", "finite"),
    ("conflicting features", changed("feature_1", 3, 7.0), 3, "feature_1", None, "of the same document and query in row"),
    ("conflicting groups", changed("group", 4, "x"), 4, "group", None, "of the same document and query in row"),
    ("no clicks", {**GOOD, "click": [0, 0, 0, 0]}, None, "click", None, "the log has no clicks"),
    ("planted without position", {**GOOD, "planted": [1, 0, 0, 0], "position": [None, 1, 1, 2]}, 1, "position", None, "planted"),
    ("planted is text", {**GOOD, "planted": [0, 0, "no", 0]}, 3, "planted", "'no'", "must be a number"),
]  # fmt: skip


def write(table: dict[str, list[Any]], path: Path) -> Path:
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in table.items()})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        columns = {}
        for name, values in table.items():
            try:
                columns[name] = pa.array(values)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                columns[name] = pa.array([None if value is None else str(value) for value in values])
        pq.write_table(pa.table(columns), path)
    return path


def refused_by_command(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: object) -> str:
    """Run a command that must refuse its input: exit code 2, one line, nothing written."""
    return refusal(capsys, *arguments, unchanged=folder).strip()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("table", "row", "column", "value", "part"),
    [case[1:] for case in TABLES],
    ids=[case[0] for case in TABLES],
)
def test_bad_rows_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ending: str,
    table: dict[str, list[Any]],
    row: int | None,
    column: str,
    value: str | None,
    part: str,
) -> None:
    path = write(table, tmp_path / f"log.{ending}")
    with pytest.raises(InputError) as caught:
        read_log(path)
    error = str(caught.value)
    assert error.startswith(str(path))
    assert f"column '{column}'" in error
    assert part in error
    if row is not None:
        # in a text file rows are lines, and the first line is the header
        assert f"row {row + 1 if ending == 'csv' else row}, " in error
    if value is not None:
        assert f"(got {value})" in error
    shown = f"fultr: {caught.value.in_shell()}"
    assert refused_by_command(capsys, tmp_path, "convert", path, tmp_path / "out.parquet") == shown
    assert refused_by_command(capsys, tmp_path, "inspect", path) == shown


def test_the_good_table_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("csv", "parquet"):
        path = write(GOOD, tmp_path / f"log.{ending}")
        assert len(read_log(path)) == 2
        assert run(["convert", str(path), str(tmp_path / "out.parquet")]) == 0


def parquet_of(table: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(table), buffer)
    return buffer.getvalue()


def with_zeros(content: bytes) -> bytes:
    return content[:4] + bytes(596) + content[600:]


HEADER = ",".join(GOOD) + "\n"
FEATURES = without("feature_1")
LONG = {name: values * 500 for name, values in GOOD.items()}

# name of the case, the file, what it holds, and what is said of it
FILES: list[tuple[str, str, bytes | str | None, str]] = [
    ("empty", "log.csv", "", "is empty"),
    ("header only", "log.csv", HEADER, "the log has no rows"),
    ("truncated", "log.parquet", parquet_of(GOOD)[:-30], "is no readable Parquet file"),
    ("damaged", "log.parquet", with_zeros(parquet_of(LONG)), "is no readable Parquet file, or damaged"),
    ("text called Parquet", "log.parquet", "impression_id,click\n1,1\n", "is no readable Parquet file"),
    ("binary called CSV", "log.csv", bytes(range(256)) * 20, "(is no readable CSV file|the column is missing)"),
    ("ragged", "log.csv", HEADER + "1,q,a,1,1,1,x,1\n" * 4 + "3,q,a\n", r"row 6: the row has 3 values, but there are 8 columns \(got '3,q,a'\)"),
    ("twice named", "log.csv", "impression_id,query_id,doc_id,position,click,click\n1,1,1,1,1,1\n", "column 'click': two columns have this name"),
    ("uneven lists", "log.parquet", parquet_of({**FEATURES, "features": [[1.0, 2.0], [1.0], [1.0, 2.0], [1.0, 2.0]]}), "row 2, column 'features': there are 1 features, but 2 in row 1"),
    ("lists of text", "log.parquet", parquet_of({**FEATURES, "features": [["a"], ["b"], ["a"], ["b"]]}), "column 'features': must be lists of numbers"),
    ("ids are floats", "log.parquet", parquet_of({**GOOD, "query_id": [1.5, 1.5, 1.5, 1.5]}), "row 1, column 'query_id': ids must be integers or text, not double"),
    ("no file", "nothing.csv", None, "no such file"),
    ("a folder", "", None, "is a folder"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "holds", "problem"), [case[1:] for case in FILES], ids=[case[0] for case in FILES]
)
def test_bad_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, holds: bytes | str | None, problem: str
) -> None:
    path = tmp_path / name
    if holds is not None:
        path.write_bytes(holds if isinstance(holds, bytes) else holds.encode())
    if path.suffix:
        with pytest.raises(InputError, match=re.escape(str(path)) + ".*" + problem):
            read_log(path)
    line = refused_by_command(capsys, tmp_path, "inspect", path)
    assert re.search(problem, line), line
    assert str(path) in line
    refused_by_command(capsys, tmp_path, "convert", path, tmp_path / "out.parquet")


def test_unknown_groups_are_named(tmp_path: Path) -> None:
    path = write(changed("group", 3, "z"), tmp_path / "log.parquet")
    with pytest.raises(
        InputError, match="row 3, column 'group': unknown group; expected one of: x, y .*got 'z'"
    ):
        read_log(path, group_names=["x", "y"])


def test_documents_that_the_second_table_lacks_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(without("feature_1"), tmp_path / "log.parquet")
    items = write(
        {"query_id": ["q", "p"], "doc_id": ["a", "b"], "price": [1.0, 2.0]}, tmp_path / "items.parquet"
    )
    problem = "row 2, column 'doc_id': the document is not in the table of documents for this query (got 'b')"
    line = refused_by_command(capsys, tmp_path, "inspect", log, "--items", items)
    assert line == f"fultr: {log}, {problem}"
    numbered = write({"query_id": [1], "doc_id": ["a"], "price": [1.0]}, tmp_path / "numbered.parquet")
    line = refused_by_command(capsys, tmp_path, "inspect", log, "--items", numbered)
    assert "column 'query_id': the ids are text here, but integers before" in line


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 1:0.5 2:1\n", "row 1, column 'qid'"),
        ("1 qid:3 1:0.5\n0 qid:3 1:0.5 2\n", "row 2.*got '2'"),
        ("1 qid:3 1:0.5\n0 qid:3 1:0.5 2:x\n", "row 2, column '2'.*got 'x'"),
        ("1 qid:3 1:nan\n", "row 1, column '1'.*finite.*nan"),
        ("-1 qid:3 1:0\n", "row 1"),
        ("# nothing\n", "no line of data"),
    ],
)
def test_bad_letor_lines_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    path = tmp_path / "data.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(str(path)) + ".*" + problem):
        read_letor(path)
    assert re.search(problem, refused_by_command(capsys, tmp_path, "inspect", path))
    common = ("simulate", path, "--clicks", 5, "--out", tmp_path / "log.parquet")
    assert re.search(problem, refused_by_command(capsys, tmp_path, *common))
    refused_by_command(capsys, tmp_path, "convert", path, tmp_path / "data.arrow")


def letor_line(query: int, number: int) -> str:
    return f"{4 * (number % 2)} qid:{query} " + " ".join(f"{k}:{(number * k) % 7}" for k in range(1, 137))


def test_a_folder_without_the_folds_files_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--clicks", 5, "--out", tmp_path / "log.parquet")
    line = refused_by_command(capsys, tmp_path, "simulate", f"mslr:{tmp_path}", *common)
    assert str(tmp_path) in line
    assert "train.txt" in line
    (tmp_path / "train.txt").write_text(letor_line(1, 1) + "\n")
    assert "vali.txt" in refused_by_command(capsys, tmp_path, "simulate", f"mslr:{tmp_path}", *common)


def test_a_query_in_two_splits_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, query in (("train", 1), ("vali", 2), ("test", 1)):
        (tmp_path / f"{name}.txt").write_text("".join(letor_line(query, k) + "\n" for k in range(40)))
    with pytest.raises(InputError, match="two"):
        datasets.mslr(tmp_path)
    common = ("--clicks", 5, "--out", tmp_path / "log.parquet")
    line = refused_by_command(capsys, tmp_path, "simulate", f"mslr:{tmp_path}", *common)
    assert "column 'query_id'" in line
    assert "(got 1)" in line


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("simulate", "german", "--clicks", 5, "--eps-plus", 0.1, "--eps-minus", 0.2), "--eps-plus: must be above"),
        (("simulate", "german", "--clicks", 5, "--eta", -1), "--eta: "),
        (("simulate", "german", "--clicks", 0), "--clicks"),
        (("simulate", "german", "--clicks", "many"), "--clicks"),
        (("simulate", "german", "--clicks", 5, "--impressions", 5), "give --clicked-impressions or --impressions, not both"),
        (("simulate", "german", "--clicks", 5, "--bias", "{bias}"), "position 20 lies beyond the position bias, which has 2"),
        (("simulate", "german", "--clicks", 5, "--bias", "{bias}", "--eta", 1), "--eta or --bias"),
        (("simulate", "german", "--clicks", 5, "--bias", "{junk}"), "is no JSON file"),
        (("simulate", "german", "--clicks", 5, "--bias", "{wrong}"), "wrong.json, column 'v_2'"),
        (("simulate", "german", "--clicks", 5, "--bias", "{missing}"), "no such file"),
        (("simulate", "german", "--clicks", 5, "--group", "shoe_size"), "--group: "),
        (("simulate", "german", "--clicks", 5, "--split", "holdout"), "--split: "),
        (("simulate", "germany", "--clicks", 5), "did you mean german"),
        (("simulate", "german", "--clicks", 5, "--plant", 2), "--plant is a share"),
        (("simulate", "german", "--clicks", 5, "--plant", 0.1, "--plant-positions", "first"), "no list of positions"),
        (("simulate", "german", "--clicks", 5, "--plant", 0.1, "--plant-positions", "0"), "--plant-positions start at 1"),
        (("simulate", "german", "--clicks", 5, "--plant", 0.1, "--plant-positions", "9", "--top-k", 5), "within --top-k 5"),
        (("simulate", "german", "--clicks", 5, "--top-k", 0), "--top-k"),
        (("simulate", "studios", "--clicks", 5, "--seed", -1), "--seed"),
        (("simulate", "german", "--clicks", 5, "--bias", "{null}"), "null.json, column 'beyond'"),
        (("simulate", "german", "--clicks", 5, "--bias", "{keys}"), "keys.json, column 'values'"),
        (("simulate", "german", "--click", 5), "--click"),
    ],
)  # fmt: skip
def test_bad_options_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], problem: str
) -> None:
    (tmp_path / "bias.json").write_text('{"values": [1, 0.5]}')
    (tmp_path / "wrong.json").write_text('{"values": [1, -0.5]}')
    (tmp_path / "null.json").write_text('{"values": [1, 0.5], "beyond": null}')
    (tmp_path / "keys.json").write_text('{"values": {"1": 1}}')
    (tmp_path / "junk.json").write_text("{values")
    filled = [str(word).replace("{", f"{tmp_path}/").replace("}", ".json") for word in arguments]
    line = refused_by_command(capsys, tmp_path, *filled, "--out", tmp_path / "log.parquet")
    assert problem in line


def test_large_seeds_and_lists_without_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--clicks", 5, "--out", tmp_path / "log.parquet")
    assert run([str(word) for word in ("simulate", "german", "--seed", 5_000_000_000, *common)]) == 0
    capsys.readouterr()
    (tmp_path / "bare.txt").write_text("1 qid:1\n0 qid:1\n")
    line = refused_by_command(capsys, tmp_path, "simulate", tmp_path / "bare.txt", *common)
    assert "a Ranking SVM needs features" in line


def test_unwritable_places_are_named_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fultr.datasets.load_dataset", lambda *_, **__: pytest.fail("the work was started"))
    for name, problem in (("log.xlsx", ".parquet or .csv"), ("nowhere/log.parquet", "folder does not exist")):
        line = refused_by_command(
            capsys, tmp_path, "simulate", "german", "--clicks", 5, "--out", tmp_path / name
        )
        assert problem in line
        assert name in line


def test_noise_without_planted_items_or_bias_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(without("propensity"), tmp_path / "log.parquet")
    assert "planted" in refused_by_command(capsys, tmp_path, "noise", path, "--eta", 1)
    assert "--column takes" in refused_by_command(capsys, tmp_path, "noise", path, "--column", "query=x")


def test_legitimate_oddities_work(tmp_path: Path) -> None:
    table: dict[str, list[Any]] = {
        "impression_id": [1, 2, 2, 3, 3],
        "query_id": [1, 2, 2, 3, 3],
        "doc_id": [1, 1, 2, 1, 2],
        "position": [1, 1, 2, 1, 2],
        "click": [0, 1, 1, 0, 0],
        "group": ["x", "x", "x", "y", "y"],
        "feature_1": [0.0] * 5,
    }
    for ending in ("csv", "parquet"):
        log = read_log(write(table, tmp_path / f"log.{ending}"))
        assert log.data.lengths.tolist() == [1, 2, 2]
        assert not np.any(log.data.features)
