"""Datasets as files: exactly what was written comes back, and nothing that is damaged passes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fultr.data.dataset import RankingDataset
from fultr.data.dataset_files import read_dataset, write_dataset
from fultr.errors import InputError
from tests.comparison import assert_same_data

ENDINGS = [".arrow", ".parquet"]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NAMES = st.text(min_size=1, max_size=6)
COLUMN_NAMES = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=6)


@st.composite
def datasets(draw: st.DrawFn) -> RankingDataset:
    lengths = draw(st.lists(st.integers(1, 4), max_size=4))
    rows, lists, width = sum(lengths), len(lengths), draw(st.integers(0, 3))
    group_names = draw(st.lists(NAMES, unique=True, max_size=3))
    whole = st.integers(-(2**63), 2**63 - 1)

    def ids(size: int, unique: bool) -> Any:
        kinds = [st.lists(kind, min_size=size, max_size=size, unique=unique) for kind in (whole, NAMES)]
        # an empty array has no kind of its own
        return draw(st.one_of(st.none(), *kinds).map(lambda values: values or None))

    return RankingDataset(
        np.array(draw(st.lists(FLOATS, min_size=rows * width, max_size=rows * width))).reshape(rows, width),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        group=np.array(
            draw(st.lists(st.integers(-1, len(group_names) - 1), min_size=rows, max_size=rows)),
            dtype=np.int32,
        ),
        group_names=group_names,
        relevance=draw(st.none() | st.lists(st.floats(0, 1, width=32), min_size=rows, max_size=rows)),
        query_id=ids(lists, unique=False),
        doc_id=ids(rows, unique=True),
        feature_names=draw(st.lists(COLUMN_NAMES, unique=True, min_size=width, max_size=width)),
        group_columns=sorted(draw(st.sets(st.integers(0, width - 1)))) if width else (),
        comment=draw(st.none() | st.lists(st.text(), min_size=rows, max_size=rows).map(lambda c: c or None)),
        source=draw(st.text()),
    )


@pytest.mark.parametrize("ending", ENDINGS)
@QUICK
@given(data=datasets())
def test_written_data_reads_back_the_same(tmp_path: Path, ending: str, data: RankingDataset) -> None:
    path = tmp_path / f"data{ending}"
    write_dataset(data, path)
    assert_same_data(read_dataset(path), data)


def a_dataset(rows: int = 6, **fields: Any) -> RankingDataset:
    given: dict[str, Any] = {
        "group": ["a", "b", None] * (rows // 3),
        "relevance": np.arange(rows) % 2,
        "query_id": ["x", "é"],
        "doc_id": np.arange(rows) + 100,
        "feature_names": ["list", "group"],  # names that are those of columns, too
        "group_columns": [1],
        "comment": [f"row {row}" for row in range(rows)],
        "source": "made up",
        **fields,
    }
    return RankingDataset(np.arange(2 * rows).reshape(rows, 2), [0, 2, rows], **given)


def test_several_row_groups_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fultr.data.dataset_files.ROWS_A_GROUP", 7)
    data = a_dataset(rows=60)
    write_dataset(data, tmp_path / "data.parquet")
    assert parquet.ParquetFile(tmp_path / "data.parquet").num_row_groups == 9
    assert_same_data(read_dataset(tmp_path / "data.parquet"), data)


def test_features_of_an_arrow_file_are_not_copied(tmp_path: Path) -> None:
    write_dataset(a_dataset(), tmp_path / "data.arrow")
    before = pa.total_allocated_bytes()
    features = read_dataset(tmp_path / "data.arrow").features
    assert not features.flags.owndata
    assert not features.flags.writeable
    assert pa.total_allocated_bytes() - before < 1000


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_file_can_be_replaced_while_its_features_are_in_use(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"data{ending}"
    write_dataset(a_dataset(), path)
    read = read_dataset(path)
    write_dataset(a_dataset(60), path)
    assert_same_data(read, a_dataset())


@pytest.mark.parametrize("ending", ENDINGS)
def test_other_tools_see_plain_columns(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"data{ending}"
    write_dataset(a_dataset(), path)
    table = pa.ipc.open_file(path).read_all() if ending == ".arrow" else parquet.read_table(path)
    assert table["query_id"].to_pylist() == ["x"] * 2 + ["é"] * 4
    assert table["list"].to_pylist() == [0] * 2 + [1] * 4
    assert table["group"].to_pylist() == ["a", "b", None] * 2
    assert table["comment"].to_pylist()[0] == "row 0"
    about = json.loads(table.schema.metadata[b"fultr"])
    assert about["kind"] == "dataset"
    assert about["source"] == "made up"


def write_table(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


def read_table(path: Path) -> pa.Table:
    return pa.ipc.open_file(path).read_all() if path.suffix == ".arrow" else parquet.read_table(path)


def labelled(**changed: Any) -> dict[str, Any]:
    table = {
        "query_id": ["q", "r", "q", "r"],
        "doc_id": [1, 1, 2, 3],
        "relevance": [1.0, 0.0, 2.0, 0.5],
        "group": ["m", None, "f", "m"],
        "price": [0.1, 0.2, 0.3, 0.4],
        "age": [1, 2, 3, 4],
        **changed,
    }
    return {name: values for name, values in table.items() if values is not None}


@pytest.mark.parametrize("ending", [*ENDINGS, ".csv"])
def test_a_labelled_table_with_a_column_for_each_feature(tmp_path: Path, ending: str) -> None:
    data = read_dataset(write_table(pa.table(labelled()), tmp_path / f"mine{ending}"))
    expected = RankingDataset(
        [[0.1, 1], [0.3, 3], [0.2, 2], [0.4, 4]],
        [0, 2, 4],
        group=[1, 0, -1, 1],
        group_names=["f", "m"],
        relevance=[1, 2, 0, 0.5],
        query_id=["q", "r"],
        doc_id=[1, 2, 1, 3],
        feature_names=["price", "age"],
    )
    assert_same_data(data, expected)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.large_list(pa.int16())]
)
def test_a_labelled_table_with_a_list_of_features(tmp_path: Path, ending: str, kind: pa.DataType) -> None:
    lists = pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], type=kind)
    columns = labelled(features=lists, price=None, age=None, relevance=None, label=[1, 0, 1, 0], group=None)
    data = read_dataset(write_table(pa.table(columns), tmp_path / f"mine{ending}"))
    assert data.features.tolist() == [[1, 2], [5, 6], [3, 4], [7, 8]]
    assert data.relevance is not None
    assert data.relevance.tolist() == [1, 1, 0, 0]
    assert data.feature_names == ("1", "2")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_labelled_table_with_several_lists_of_a_query(tmp_path: Path, ending: str) -> None:
    path = write_table(
        pa.table(labelled(query_id=[7, 7, 7, 7], list=[4, 2, 4, 2])), tmp_path / f"mine{ending}"
    )
    data = read_dataset(path)
    assert data.query_id is not None
    assert data.query_id.tolist() == [7, 7]
    assert data.features[:, 1].tolist() == [1, 3, 2, 4]


def test_a_file_of_ours_that_lost_its_metadata(tmp_path: Path) -> None:
    data = a_dataset(group_columns=(), source="")
    write_dataset(data, tmp_path / "data.parquet")
    bare = parquet.read_table(tmp_path / "data.parquet").replace_schema_metadata(None)
    assert_same_data(read_dataset(write_table(bare, tmp_path / "bare.parquet")), data)


@pytest.mark.parametrize(
    ("changed", "row", "column", "says"),
    [
        ({"query_id": None, "qurey_id": [1, 1, 2, 2]}, None, "query_id", "is 'qurey_id' meant"),
        ({"relevance": None, "relevence": [1, 1, 0, 0]}, None, "relevance", "is 'relevence' meant"),
        ({"relevance": None}, None, "relevance", "missing"),
        ({"query_id": ["a", "b", None, "c"]}, 3, "query_id", "missing"),
        ({"query_id": [0.5, 1.5, 2.5, 3.5]}, 1, "query_id", "integers or text"),
        ({"doc_id": ["a", None, "b", "c"]}, 2, "doc_id", "missing"),
        ({"doc_id": [5, 1, 5, 3]}, 3, "doc_id", "stands in row 1 of the same list"),
        ({"relevance": [1, None, 0, 0]}, 2, "relevance", "0 or more"),
        ({"relevance": [1, 0, 0, -1]}, 4, "relevance", "0 or more"),
        ({"relevance": [1, 1e39, 0, 0]}, 2, "relevance", "finite"),
        ({"age": [1, 2, None, 4]}, 3, "age", "finite float32"),
        ({"age": [1, 2, float("nan"), 4]}, 3, "age", "finite float32"),
        ({"age": [1, 2, 3, 1e39]}, 4, "age", "finite float32"),
        ({"colour": ["red", "red", "blue", "red"]}, None, "colour", "a feature must be a number"),
        ({"age": None, "price": None}, None, "features", "missing"),
        ({"features": [[1.0], [2.0], [3.0, 4.0], [5.0]]}, 3, "features", "2 features, but 1"),
        ({"features": [[1.0], None, [3.0], [5.0]]}, 2, "features", "missing"),
        ({"features": [[1.0], [None], [3.0], [5.0]]}, 2, "features[0]", "finite float32"),
        ({"features": [1.0, 2.0, 3.0, 4.0]}, 1, "features", "lists of numbers"),
        ({"list": [1, 1, 2, 2]}, 2, "query_id", "another query in row 1"),
    ],
)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_wrong_table_is_named(
    tmp_path: Path, ending: str, changed: dict[str, Any], row: int | None, column: str, says: str
) -> None:
    path = write_table(pa.table(labelled(**changed)), tmp_path / f"mine{ending}")
    with pytest.raises(InputError, match=says.replace("[", r"\[")) as caught:
        read_dataset(path)
    assert (caught.value.file, caught.value.row, caught.value.column) == (str(path), row, column)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_tables_that_cannot_be_a_dataset_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"mine{ending}"
    write_table(pa.table(labelled()).slice(0, 0), path)
    with pytest.raises(InputError, match="no rows"):
        read_dataset(path)
    columns = labelled()
    write_table(pa.table([*columns.values(), columns["age"]], names=[*columns, "age"]), path)
    with pytest.raises(InputError, match="two columns have this name") as caught:
        read_dataset(path)
    assert caught.value.column == "age"


def test_feature_lists_must_have_one_length_over_all_batches(tmp_path: Path) -> None:
    columns = labelled(price=None, age=None)
    parts = [pa.table({**columns, "features": [[1.0] * width] * 4}) for width in (1, 2)]
    path = write_table(pa.concat_tables(parts), tmp_path / "mine.arrow")
    with pytest.raises(InputError, match="number of features differs"):
        read_dataset(path)


def test_a_csv_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        '# fultr {"version": 1, "kind": "click-log"}\nquery_id,relevance,x\n1,0,5\n'
    )
    with pytest.raises(InputError, match="holds no dataset; it was written as click-log"):
        read_dataset(tmp_path / "log.csv")


def test_a_wrong_value_in_csv_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("query_id,relevance,x\n1,0,5\n1,1,five\n")
    with pytest.raises(InputError, match="number") as caught:
        read_dataset(tmp_path / "mine.csv")
    assert (caught.value.row, caught.value.column, caught.value.value) == (3, "x", "five")


@pytest.mark.parametrize("ending", ENDINGS)
@QUICK
@given(data=st.data())
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, ending: str, data: st.DataObject) -> None:
    path = tmp_path / f"data{ending}"
    write_dataset(a_dataset(), path)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(1, len(content) - 1))])
    with pytest.raises(InputError) as caught:
        read_dataset(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
@QUICK
@given(data=st.data())
def test_files_with_changed_bytes_never_raise_anything_else(
    tmp_path: Path, ending: str, data: st.DataObject
) -> None:
    path = tmp_path / f"data{ending}"
    write_dataset(a_dataset(), path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(InputError):
        read_dataset(path)


@pytest.mark.parametrize("ending", [*ENDINGS, ".csv"])
@pytest.mark.parametrize("content", [b"", b"1 qid:1 1:2\n", b"PAR1PAR1", b"ARROW1\0\0ARROW1", bytes(1000)])
def test_what_is_no_such_file_is_refused(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"data{ending}"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_dataset(path)
    assert "\n" not in str(caught.value)


def test_endings_that_are_not_known_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1 qid:1 1:2\n")
    with pytest.raises(InputError, match="read_letor"):
        read_dataset(tmp_path / "data.txt")
    for name in ("data.txt", "data.csv", "data"):
        with pytest.raises(InputError, match=r"\.arrow or \.parquet"):
            write_dataset(a_dataset(), tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_dataset(tmp_path / "none.arrow")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"version": 99}, "newer fultr"),
        ({"kind": "click-log"}, "holds no dataset; it was written as click-log"),
        ({"kind": None}, "holds no dataset"),
        ({"feature_names": None}, "damaged"),
        ({"feature_names": [1, 2]}, "damaged"),
        ({"feature_names": ["list", "grop"]}, "missing|as many"),
        ({"feature_names": ["list", "group", "third"]}, "missing|as many"),
        ({"group_names": "ab"}, "damaged"),
        ({"group_names": ["a", "c"]}, "unknown group"),
        ({"group_columns": [7]}, "must lie in"),
        ({"group_columns": [True]}, "damaged"),
        ({"source": 5}, "damaged"),
    ],
)
def test_metadata_that_is_not_ours_is_refused(
    tmp_path: Path, ending: str, changed: dict[str, Any], says: str
) -> None:
    path = tmp_path / f"data{ending}"
    write_dataset(a_dataset(), path)
    table = read_table(path)
    about = {**json.loads(table.schema.metadata[b"fultr"]), **changed}
    other = write_table(
        table.replace_schema_metadata({b"fultr": json.dumps(about).encode()}), tmp_path / f"other{ending}"
    )
    if says == "missing|as many" and ending == ".arrow" and len(about["feature_names"]) == 2:
        assert read_dataset(other).feature_names == ("list", "grop")
        return
    with pytest.raises(InputError, match=says) as caught:
        read_dataset(other)
    assert caught.value.file == str(other)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("column", "values", "row", "says"),
    [
        ("list", pa.array([0, 0, None, 1, 1, 1]), 3, "missing"),
        ("query_id", pa.array(["x", "x", "y", "z", "y", "y"]), 4, "another query in row 3"),
        ("doc_id", pa.array([1, 2, 3, 3, 4, 5]), 4, "stands in row 3"),
        ("group", pa.array(["a", "b", "c", None, "a", "a"]), 3, "unknown group"),
    ],
)
def test_columns_of_ours_that_were_changed_are_refused(
    tmp_path: Path, ending: str, column: str, values: pa.Array, row: int, says: str
) -> None:
    path = tmp_path / f"data{ending}"
    write_dataset(a_dataset(), path)
    table = read_table(path)
    changed = table.set_column(table.column_names.index(column), column, values)
    with pytest.raises(InputError, match=says) as caught:
        read_dataset(write_table(changed, tmp_path / f"other{ending}"))
    assert (caught.value.row, caught.value.column) == (row, column)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("ending", ENDINGS)
def test_features_of_ours_that_were_changed_are_refused(
    tmp_path: Path, ending: str, value: float | None
) -> None:
    path = tmp_path / f"data{ending}"
    write_dataset(a_dataset(), path)
    table = read_table(path)
    name = "features" if ending == ".arrow" else "feature_group"
    values = table[name].to_pylist()
    values[2] = [1.0, value] if ending == ".arrow" else value
    column = pa.array(values, type=table.schema.field(name).type)
    changed = table.set_column(table.column_names.index(name), name, column)
    with pytest.raises(InputError, match="finite float32") as caught:
        read_dataset(write_table(changed, tmp_path / f"other{ending}"))
    assert caught.value.row == 3
