"""LETOR text: what is read is what stands there, and what is written comes back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from fultr.data import letor, letor_kernel, read_letor, write_letor
from fultr.data.dataset import RankingDataset
from fultr.errors import InputError
from tests.comparison import assert_same_arrays

Write = Callable[[str | bytes], Path]

QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
LABELS = st.floats(min_value=0, max_value=2.0**100, width=32)
WORDS = st.text(
    st.characters(min_codepoint=33, exclude_characters="#", exclude_categories=["Z", "C"]), min_size=1
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    path = tmp_path / "data.txt"

    def to_file(content: str | bytes) -> Path:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


def parsed_slowly(text: str) -> tuple[list[str], list[list[list[float]]], list[list[float]]]:
    """Parse good LETOR text the plain way: queries, their rows of features, and their labels."""
    rows = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            pairs = [word.split(":") for word in words[2:]]
            rows.append((words[1][4:], float(words[0]), {int(index): float(value) for index, value in pairs}))
    width = max((max(pairs, default=0) for _, _, pairs in rows), default=0)
    queries = list(dict.fromkeys(query for query, _, _ in rows))
    features = [
        [[pairs.get(column + 1, 0.0) for column in range(width)] for of, _, pairs in rows if of == query]
        for query in queries
    ]
    return queries, features, [[label for of, label, _ in rows if of == query] for query in queries]


def assert_parsed_as_slowly(data: RankingDataset, text: str) -> None:
    queries, features, labels = parsed_slowly(text)
    assert data.query_id is not None
    assert data.relevance is not None
    assert [str(query) for query in data.query_id.tolist()] == queries
    assert data.lengths.tolist() == [len(rows) for rows in features]
    expected = np.array([row for rows in features for row in rows], dtype=np.float32)
    np.testing.assert_array_equal(data.features, expected.reshape(data.features.shape))
    np.testing.assert_array_equal(data.relevance, np.concatenate(labels).astype(np.float32))


@st.composite
def datasets(draw: st.DrawFn) -> RankingDataset:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    rows, width = sum(lengths), draw(st.integers(0, 4))
    values = draw(st.lists(FLOATS, min_size=rows * width, max_size=rows * width))
    lists = len(lengths)
    integers = st.integers(-(2**63), 2**63 - 1)
    query_id = draw(
        st.lists(integers, min_size=lists, max_size=lists, unique=True)
        # one of them shows that they are text
        | st.lists(WORDS, min_size=lists, max_size=lists, unique=True).map(
            lambda ids: [*ids[1:], "no-number"]
        )
    )
    doc_id = draw(st.none() | st.just(list(range(rows))) | st.just([f"d{row}é" for row in range(rows)]))
    comment = None
    if draw(st.booleans()):
        words = st.text(st.characters(exclude_categories=["C"]), max_size=5)
        naming = "" if doc_id is None else "docid = {} "
        comment = [f"{naming.format(row)}a remark {draw(words)}".strip() for row in doc_id or range(rows)]
    return RankingDataset(
        np.array(values, dtype=np.float32).reshape(rows, width),
        np.concatenate([[0], np.cumsum(lengths)]),
        relevance=draw(st.lists(LABELS, min_size=rows, max_size=rows)),
        query_id=query_id,
        doc_id=doc_id,
        comment=comment,
    )


@QUICK
@given(data=datasets(), block_bytes=st.sampled_from([1, 64, 1 << 20]))
def test_written_data_reads_back_the_same(tmp_path: Path, data: RankingDataset, block_bytes: int) -> None:
    if len(set(data.query_id.tolist() if data.query_id is not None else [])) < len(data):
        return
    write_letor(data, tmp_path / "data.txt")
    assert_same_arrays(read_letor(tmp_path / "data.txt", block_bytes=block_bytes), data)


@st.composite
def letor_texts(draw: st.DrawFn) -> str:
    """Good text of every kind: sparse, unordered, blank lines, comments, tabs, CRLF, queries mixed."""
    blank = st.sampled_from([" ", "  ", "\t", " \t "])
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    number = st.sampled_from(["0", "1", "-2.5", "+3", "1e-3", ".5", "7.", "1E2", "0.1"]) | FLOATS.map(repr)
    lines = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["row", "row", "row", "row", "blank", "comment"]))
        if kind != "row":
            lines.append(
                draw(st.sampled_from(["", "  ", "\t"])) + ("# 1 qid:1 1:5" if kind == "comment" else "")
            )
            continue
        indices = draw(st.lists(st.integers(1, 30), unique=True, max_size=6))
        words = [draw(st.sampled_from(["0", "1", "2.5", "4"])), f"qid:{draw(st.integers(1, 4))}"]
        words += [f"{index}:{draw(number)}" for index in indices]
        comment = draw(st.sampled_from(["", "#", " # docid = A inc = 1", "# 3:4", " #é"]))
        lines.append(draw(st.sampled_from(["", " "])) + draw(blank).join(words) + comment)
    lines.append("1 qid:2 2:1")
    return ending.join(lines) + draw(st.sampled_from(["", ending]))


@QUICK
@given(text=letor_texts(), block_bytes=st.sampled_from([1, 7, 40, 1 << 20]))
def test_agrees_with_a_plain_parser(write: Write, text: str, block_bytes: int) -> None:
    assert_parsed_as_slowly(read_letor(write(text), block_bytes=block_bytes), text)


def test_agrees_with_scikit_learn(write: Write) -> None:
    generator = np.random.default_rng(0)
    rows = [
        f"{generator.integers(5)} qid:{row // 10} "
        + " ".join(
            f"{column + 1}:{generator.normal():.6g}" for column in range(20) if generator.random() < 0.6
        )
        for row in range(200)
    ]
    path = write("\n".join(rows))
    data = read_letor(path)
    features, labels, queries = load_svmlight_file(
        str(path), query_id=True, n_features=data.features.shape[1]
    )
    np.testing.assert_array_equal(data.features, features.toarray().astype(np.float32))
    np.testing.assert_array_equal(data.relevance, labels)
    assert data.query_id is not None
    np.testing.assert_array_equal(np.repeat(data.query_id, data.lengths), queries)


def parsed_number(text: str) -> float | None:
    """Return what the compiled loop makes of a number; None if it is left to Python."""
    sure, position, value = letor_kernel.parse_number(np.frombuffer(f"{text}\n".encode(), dtype=np.uint8), 0)
    assert not sure or position == len(text)
    return value if sure else None


def as_float32(text: str) -> bytes:
    with np.errstate(over="ignore"):
        return np.float32(float(text)).tobytes()


DECIMALS = st.from_regex(
    r"[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?", fullmatch=True
)


@settings(max_examples=200, deadline=None)
@given(text=DECIMALS)
@example("1e-45")
@example("7e-46")
@example("0.1")
@example("-0")
@example("+3")
@example("0.000000000000000000000000000000001234567890123456789")
@example("16777217")
@example("16777217.0000000000000000000000000001")
@example("9007199254740993")
@example("123456789012345678901234567890")
@example("1e400")
@example("1e-400")
@example("00000000000000000000000000000000000001.5")
@example("340282346638528859811704183484516925440")
@example("340282356779733661637539395458142568448")
def test_numbers_are_what_python_makes_of_them(text: str) -> None:
    value = parsed_number(text)
    if value is not None:
        assert np.float32(value).tobytes() == as_float32(text)


@QUICK
@given(
    numbers=st.lists(DECIMALS.filter(lambda text: abs(float(text)) < letor_kernel.FLOAT32_LIMIT), min_size=1)
)
def test_numbers_in_a_file_are_what_python_makes_of_them(write: Write, numbers: list[str]) -> None:
    pairs = " ".join(f"{index}:{number}" for index, number in enumerate(numbers, start=1))
    data = read_letor(write(f"1 qid:1 {pairs}"))
    assert data.features.tobytes() == b"".join(map(as_float32, numbers))


def test_many_random_numbers_are_what_python_makes_of_them() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20_000):
        digits = "".join(map(str, generator.integers(0, 10, generator.integers(1, 26))))
        point = generator.integers(0, len(digits) + 1)
        exponent = generator.choice(["", "e3", "E-7", "e+20", "e-30", "e-44"])
        text = f"{generator.choice(['', '-', '+'])}{digits[:point]}.{digits[point:]}{exponent}"
        value = parsed_number(text)
        if value is not None:
            assert np.float32(value).tobytes() == as_float32(text), text


def test_hardly_any_number_is_left_to_python() -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=2000) * 10.0 ** generator.integers(-20, 20, 2000)
    assert sum(parsed_number(repr(value)) is None for value in values.tolist()) < 20


def test_numbers_half_way_between_two_float32_are_exact_in_any_quantity(write: Write) -> None:
    # each needs more digits than the compiled loop keeps, and lies so near to the middle that all count
    words = [f"{16777217 + 2 * step}.{'0' * 20}{step % 2}" for step in range(1000)]
    rows = [" ".join(f"{index + 1}:{word}" for index, word in enumerate(words))] * 3
    data = read_letor(write("".join(f"{words[0]} qid:1 {row}\n" for row in rows)))
    expected = np.array([float(word) for word in words]).astype(np.float32)
    np.testing.assert_array_equal(data.features, np.tile(expected, (3, 1)))
    np.testing.assert_array_equal(data.relevance, np.tile(expected[0], 3))


@pytest.mark.parametrize("text", ["", "-", ".", "e5", "1e", "1e+", "1_0", "0x1", "1.2.3", "nan", "inf", "1-"])
def test_what_is_no_decimal_number_is_refused(text: str) -> None:
    assert parsed_number(text) is None


@QUICK
@given(data=st.data(), block_bytes=st.sampled_from([1, 50, 1 << 20]))
def test_queries_need_not_stand_together(write: Write, data: st.DataObject, block_bytes: int) -> None:
    queries = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=30))
    text = "\n".join(f"{row % 3} qid:{query} 1:{row} 2:{-row} # d{row}" for row, query in enumerate(queries))
    read = read_letor(write(text), block_bytes=block_bytes)
    assert_parsed_as_slowly(read, text)
    assert read.doc_id is not None
    assert read.doc_id.tolist() == [f"d{int(row)}" for row in read.features[:, 0]]


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_width_grows_with_the_largest_index(write: Write, block_bytes: int) -> None:
    text = "".join(f"0 qid:{row // 4} {row * row + 1}:{row} 1:0.5\n" for row in range(1, 40))
    data = read_letor(write(text), block_bytes=block_bytes)
    assert data.features.shape == (39, 39 * 39 + 1)
    assert_parsed_as_slowly(data, text)


@pytest.mark.parametrize("block_bytes", [30, 1 << 20])
def test_rows_that_become_shorter_still_fit(write: Write, block_bytes: int) -> None:
    # the first block lets few rows be expected
    text = "".join(f"1 qid:1 1:{'1' * max(1, 200 - row)}e-190\n" for row in range(600))
    assert_parsed_as_slowly(read_letor(write(text), block_bytes=block_bytes), text)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["1", "2"], [1, 2]),
        (["007", "-7", "+8"], [7, -7, 8]),
        (["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        (["007", "7", "x"], ["007", "7", "x"]),
        (["1", "9223372036854775808"], ["1", "9223372036854775808"]),
        (["1", "-9223372036854775809"], ["1", "-9223372036854775809"]),
        (["1", "92233720368547758070"], ["1", "92233720368547758070"]),
        (["1", "1.5"], ["1", "1.5"]),
        (["-"], ["-"]),
        (["é", "a:b"], ["é", "a:b"]),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_query_ids_are_numbers_or_all_text(
    write: Write, ids: list[str], expected: list[object], block_bytes: int
) -> None:
    data = read_letor(write("".join(f"0 qid:{query} 1:1\n" for query in ids)), block_bytes=block_bytes)
    assert data.query_id is not None
    assert data.query_id.tolist() == expected


@pytest.mark.parametrize(
    ("comments", "documents", "kept"),
    [
        (["docid = GX1 inc = 1 prob = 0.5", "docid=GX2"], ["GX1", "GX2"], True),
        (["d1", "d2"], ["d1", "d2"], False),
        (["12", "-3"], [12, -3], False),
        (["12", "007"], ["12", "007"], False),
        (["d1", "a remark"], None, True),
        (["d1", ""], None, True),
        (["", "d1"], None, True),
        (["same", "same"], None, True),
        (["", ""], None, False),
        (["é # # x", "日本"], None, True),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_comments_and_documents(
    write: Write, comments: list[str], documents: list[object] | None, kept: bool, block_bytes: int
) -> None:
    text = "".join(f"0 qid:1 1:1 #  {comment} \r\n" for comment in comments)
    data = read_letor(write(text), block_bytes=block_bytes)
    assert (None if data.doc_id is None else data.doc_id.tolist()) == documents
    assert (None if data.comment is None else data.comment.tolist()) == (comments if kept else None)


def test_comments_that_start_late_are_kept_in_their_rows(write: Write) -> None:
    text = "".join(f"0 qid:{row % 2} 1:{row}{' # c ' + str(row) if row > 5 else ''}\n" for row in range(10))
    data = read_letor(write(text), block_bytes=1)
    assert data.comment is not None
    rows = data.features[:, 0].astype(int)
    assert data.comment.tolist() == [f"c {row}" if row > 5 else "" for row in rows]


def test_bad_bytes_in_comments_are_replaced(write: Write) -> None:
    data = read_letor(write(b"1 qid:1 1:2 # caf\xe9 ole\n"))
    assert data.comment is not None
    assert data.comment.tolist() == ["caf\ufffd ole"]


def test_byte_order_mark_is_skipped(write: Write) -> None:
    assert read_letor(write(b"\xef\xbb\xbf1 qid:1 1:2\n"), block_bytes=1).features.tolist() == [[2.0]]


def test_rows_without_features(write: Write) -> None:
    data = read_letor(write("1 qid:1\n0 qid:2 # x y\n"))
    assert data.features.shape == (2, 0)
    assert len(data) == 2


@pytest.mark.parametrize(
    ("line", "column", "value", "says"),
    [
        ("1 1:2 2:3", "qid", "1:2", "expected qid:N"),
        ("1", "qid", None, "expected qid:N"),
        ("1 qid: 1:2", "qid", "qid:", "expected qid:N"),
        ("1#qid:3", "qid", None, "expected qid:N"),
        ("x qid:1 1:2", "label", "x", "must be a number"),
        ("qid:1 1:2", "label", "qid:1", "must be a number"),
        ("-1 qid:1 1:2", "label", "-1", "0 or more"),
        ("-1e-70 qid:1 1:2", "label", "-1e-70", "0 or more"),
        ("nan qid:1 1:2", "label", "nan", "finite"),
        ("1e39 qid:1 1:2", "label", "1e39", "float32"),
        ("1 qid:1 5:", "5", "5:", "index:value"),
        ("1 qid:1 :3", None, ":3", "index:value"),
        ("1 qid:1 5", "5", "5", "index:value"),
        ("1 qid:1 a:1", None, "a:1", "index:value"),
        ("1 qid:1 -1:1", None, "-1:1", "index:value"),
        ("1 qid:1 1: 2", "1", "1:", "index:value"),
        ("1 qid:1 0:1", "0", "0:1", "must lie in 1..1000000"),
        ("1 qid:1 1000001:1", "1000001", "1000001:1", "must lie in 1..1000000"),
        (f"1 qid:1 1{'0' * 5000}:1", f"1{'0' * 19}", None, "must lie in 1..1000000"),
        ("1 qid:1 5:abc", "5", "abc", "must be a number"),
        ("1 qid:1 5:1:2", "5", "1:2", "must be a number"),
        ("1 qid:1 5:1_0", "5", "1_0", "must be a number"),
        ("1 qid:1 5:0x10", "5", "0x10", "must be a number"),
        ("1 qid:1 5:\u0661", "5", "\u0661", "must be a number"),
        ("1 qid:1 5:nan", "5", "nan", "finite"),
        ("1 qid:1 5:-Infinity", "5", "-Infinity", "finite"),
        ("1 qid:1 5:1e39", "5", "1e39", "float32"),
        ("1 qid:1 5:-1e999", "5", "-1e999", "float32"),
        ("1 qid:1 5:340282356779733661637539395458142568448", "5", None, "float32"),
        ("1 qid:1 3:1 5:1 3:1", "3", "3:1", "twice"),
        ("1 qid:1 9:1 9:0", "9", "9:0", "twice"),
        ("1 qid:1 2:nan qid:2", "2", "nan", "finite"),
        ("1 qid:1 2:1 qid:2", None, "qid:2", "index:value"),
        ("\u00a0", "label", "", "must be a number"),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize("query", ["1", "text"])
def test_a_wrong_line_is_named(
    write: Write, line: str, column: str | None, value: str | None, says: str, block_bytes: int, query: str
) -> None:
    path = write(f"# head\n\n1 qid:{query} 1:2 2:0.5\n{line}\n1 qid:3 1:2\n")
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        read_letor(path, block_bytes=block_bytes)
    error = caught.value
    assert (error.file, error.row, error.column) == (str(path), 4, column)
    assert value is None or error.value == value
    assert "\n" not in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n \n# only a comment\n", "no line of data"),
        (b"\xef\xbb\xbf\n", "no line of data"),
        (b"1 qid:1 1:2\n1 qid:1\x00 1:2\n", "binary"),
        (b"PAR1\x15\x04\x00\x00PAR1", "Parquet"),
        (b"ARROW1\x00\x00\xff\xff", "Arrow"),
        (b"\x1f\x8b\x08\x00\x00", "gzip"),
        (b"PK\x03\x04\x00", "zip"),
        ("1 qid:1 1:2\n".encode("utf-16"), "binary"),
        (bytes(range(1, 256)) * 50, "must be a number"),
    ],
)
def test_what_is_no_letor_text_is_refused(write: Write, content: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_letor(write(content))


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_letor(tmp_path / "none.txt")
    with pytest.raises(InputError, match="is a folder"):
        read_letor(tmp_path)


def test_a_line_without_end_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor, "LONGEST_LINE", 1000)
    with pytest.raises(InputError, match="a line of more than 1000 bytes"):
        read_letor(write("1 " * 5000), block_bytes=64)


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_more_than_the_memory_of_the_machine_is_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(letor, "_memory_of_machine", lambda: 1_000_000)
    path = write("1 qid:1 1:2\n" * 1000 + "1 qid:1 1000000:2\n")
    with pytest.raises(InputError, match=r"need \d+\.\d GB, more than this machine has") as caught:
        read_letor(path, block_bytes=block_bytes)
    assert (caught.value.row, caught.value.column) == (1001, "1000000")


def a_dataset(**fields: object) -> RankingDataset:
    columns: dict[str, object] = {"relevance": [1, 0, 2], "query_id": ["a", "b"], **fields}
    return RankingDataset([[1.0], [2.0], [3.0]], [0, 2, 3], **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "column", "says"),
    [
        ({"relevance": None}, "relevance", "no labels"),
        ({"query_id": ["a", "b c"]}, "query_id", "one word"),
        ({"query_id": ["a", "b#"]}, "query_id", "one word"),
        ({"query_id": ["a", "b\u2003c"]}, "query_id", "one word"),
        ({"query_id": [4, 4]}, "query_id", "several"),
        ({"comment": ["x", "y\nz", ""]}, "comment", "one line"),
        ({"comment": ["x", "y\rz", ""]}, "comment", "one line"),
        ({"comment": ["x", "y\0z", ""]}, "comment", "one line"),
        ({"doc_id": ["x", "y\n", "z"]}, "doc_id", "one line"),
        ({"doc_id": ["x", "y z", "z"]}, "doc_id", "one word"),
        ({"doc_id": ["x", "y", "z"], "comment": ["x", "a remark", "z"]}, "comment", "must name the document"),
    ],
)
def test_what_letor_text_cannot_hold_is_refused(
    tmp_path: Path, fields: dict[str, object], column: str, says: str
) -> None:
    path = tmp_path / "data.txt"
    path.write_text("old")
    with pytest.raises(InputError, match=says) as caught:
        write_letor(a_dataset(**fields), path)
    assert caught.value.column == column
    assert path.read_text() == "old"


def test_lists_without_query_ids_are_numbered(tmp_path: Path) -> None:
    write_letor(a_dataset(query_id=None), tmp_path / "data.txt")
    assert (tmp_path / "data.txt").read_text() == "1 qid:1 1:1\n0 qid:1 1:2\n2 qid:2 1:3\n"


def test_many_rows_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor, "ROWS_A_WRITE", 7)
    generator = np.random.default_rng(0)
    features = generator.normal(size=(100, 3)).astype(np.float32)
    data = RankingDataset(features, [0, 40, 100], relevance=np.zeros(100), query_id=[5, 6])
    write_letor(data, tmp_path / "data.txt")
    assert_same_arrays(read_letor(tmp_path / "data.txt"), data)


@pytest.mark.skipif("FULTR_MSLR" not in os.environ, reason="set FULTR_MSLR to a folder with Fold1/train.txt")
@pytest.mark.parametrize("part", ["train", "vali", "test"])
def test_mslr_agrees_with_scikit_learn_and_comes_back(tmp_path: Path, part: str) -> None:
    folder = Path(os.environ["FULTR_MSLR"])
    path = (folder / "Fold1" if (folder / "Fold1").is_dir() else folder) / f"{part}.txt"
    data = read_letor(path)
    features, labels, _ = load_svmlight_file(str(path), query_id=True)
    np.testing.assert_array_equal(data.features, features.toarray().astype(np.float32))
    np.testing.assert_array_equal(data.relevance, labels)
    write_letor(data, tmp_path / "again.txt")
    assert_same_arrays(read_letor(tmp_path / "again.txt"), data)
