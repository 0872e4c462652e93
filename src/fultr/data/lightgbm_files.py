"""Click logs as LightGBM keeps them: a file of data, and beside it files with a line for each list or row.

Of `train.txt`, `train.txt.query` holds the lengths of lists, and `train.txt.position` the positions of rows.
LightGBM has no place for ids and groups. They may stand in files of the same kind, which it does not look at:
`train.txt.query_id` with a line for each list, `train.txt.doc_id` and `train.txt.item_group` for each row.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from fultr.arguments import Progress, whole_number
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import columns
from fultr.data.click_log import ClickLog
from fultr.data.coding import Coder
from fultr.data.columns import NOT_FINITE, NUMBER, Place
from fultr.data.dataset import RankingDataset
from fultr.data.ids import UNKNOWN_GROUP, Ids
from fultr.data.letor import read_letor
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.log_table import no_clicks
from fultr.data.propensity import NOT_SHOWN
from fultr.data.table_files import damaged
from fultr.errors import InputError
from fultr.files import atomic_write, existing_file

Weights = Literal["inverse-propensity", "ignore"]
Value = TypeVar("Value")

POSITION = re.compile(r"[A-Za-z_ -]*?([0-9]{1,9})", re.ASCII)
"""A position, or a name that ends in one, such as pos_3."""

PAIRS = re.compile(rb"[^\s:]+:")
ROWS_A_WRITE = 8192


def read_lightgbm_log(
    path: str | Path,
    *,
    first_position: int | None = None,
    weights: Weights | None = None,
    position_bias: PositionBias | None = None,
    noise: ClickNoise | None = None,
    empties_dropped: bool = False,
    progress: Progress | None = None,
) -> ClickLog:
    """Read a click log from a file of data for LightGBM and the files beside it; labels are clicks.

    Each list is an impression. Its query is that of `.query_id`, or else of `qid:` in the data; without
    either, each list is a query of its own. Documents without ids are told apart by their features.

    Parameters
    ----------
    path
        Data as `label index:value ...`, with or without `qid:N`, with indices from 0 (if there is a 0) or
        from 1; or as CSV or TSV with the label first, or in a column called label. Beside it must stand
        `.query`, unless the data has `qid:N`, and `.position`.
    first_position
        What the first position is called, 0 or 1; by default 0 if there is a 0 in the file, and else 1.
    weights
        What the weights of `.weight` are, if there is such a file: one over the propensity of each row, or
        nothing that matters here.
    position_bias, noise, empties_dropped
        As in `log_from_frame`.
    progress
        Called with how much of the data has been read, and with its size.
    """
    file = existing_file(path)
    rows = _read_table(file, progress) if _is_table(file) else _read_pairs(file, progress)
    offsets, query = _lists(file, rows)
    size = int(offsets[-1])
    shown = _positions(_beside(file, "position"), size, first_position)
    clicks = rows.label
    wrong = np.flatnonzero((clicks != 0) & (clicks != 1))
    if wrong.size:
        problem = "the label of a click log is the click, 0 or 1"
        raise InputError(
            problem, file=file, row=rows.line(wrong[0]), column="label", value=float(clicks[wrong[0]])
        )
    if not clicks.any():
        raise no_clicks(file)
    groups = _beside(file, "item_group")
    query_id = _ids(_beside(file, "query_id"), offsets.size - 1, query)
    doc_id = _ids(_beside(file, "doc_id"), size, None)
    group = [name or None for name in _lines(groups, size)] if groups.exists() else None
    propensity = _propensities(_beside(file, "weight"), size, weights)
    try:
        data = RankingDataset(
            rows.features, offsets, group=group, query_id=query_id, doc_id=doc_id, feature_names=rows.names
        )
        return ClickLog(
            data,
            np.arange(len(data)),
            shown,
            clicks,
            propensity=propensity,
            position_bias=position_bias,
            noise=noise,
            empties_dropped=empties_dropped,
        )
    except InputError as error:
        where = error.column if error.column in ("position", "doc_id") else None
        raise error.located(file if where is None else _beside(file, where)) from None


@dataclass
class _Rows:
    """The data, row by row in the order of the file; `query` is the text after `qid:`, if there is any."""

    features: NDArray[np.float32]
    label: NDArray[Any]
    names: tuple[str, ...] = ()
    query: list[str] = field(default_factory=list)
    line: Callable[[int], int] = lambda row: int(row) + 1


def _beside(file: Path, what: str) -> Path:
    return file.with_name(f"{file.name}.{what}")


def _is_table(file: Path) -> bool:
    """Say whether the first line of data is one of a CSV or TSV file; others have index:value pairs."""
    with file.open("rb") as opened:
        first = next((line for line in opened if line.strip()), b"")
    return not PAIRS.search(first) and (b"," in first or b"\t" in first)


def _read_pairs(file: Path, progress: Progress | None) -> _Rows:
    """Read `label index:value ...` by the reader of LETOR text, which wants a query in each line."""
    queries: list[str] = []
    first: dict[int, float] = {}
    lines: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        with file.open("rb") as given, (Path(folder) / "data.txt").open("wb") as made:
            for number, line in enumerate(given, start=1):
                words = line.split(b"#", 1)[0].split(None, 2)
                if not words:
                    made.write(b"\n")
                    continue
                lines.append(number)
                label, rest = words[0], b" ".join(words[1:])
                if rest.startswith(b"qid:"):
                    query, _, rest = rest.partition(b" ")
                    queries.append(query[4:].decode("utf-8", "replace"))
                if rest.startswith(b"0:"):
                    value, _, rest = rest.partition(b" ")
                    first[len(lines) - 1] = _number(value[2:], file, number)
                made.write(b"%s qid:0 %s\n" % (label, rest.rstrip()))
        if not lines:
            raise InputError("has no line of data; a line is: label index:value ...", file=file)
        try:
            data = read_letor(Path(folder) / "data.txt", progress=progress)
        except InputError as error:
            raise error.located(file) from None
    if queries and len(queries) != len(lines):
        raise InputError("some rows have qid:N, and others have not", file=file, column="qid")
    features, names = data.features, data.feature_names
    if first:
        values = np.zeros(len(lines), dtype=np.float32)
        values[list(first)] = list(first.values())
        features = np.column_stack([values, features])
        names = ("0", *names)
    return _Rows(features, _known(data.relevance), names, queries, lambda row: lines[int(row)])


def _number(word: bytes, file: Path, line: int) -> float:
    text = word.decode("utf-8", "replace")
    if not NUMBER.fullmatch(text) or not np.isfinite(np.float32(min(abs(float(text)), 1e39))):
        raise InputError("must be a finite number", file=file, row=line, column="0", value=text)
    return float(text)


def _known(value: Value | None) -> Value:
    assert value is not None  # noqa: S101 - LETOR text has a label in each line
    return value


def _read_table(file: Path, progress: Progress | None) -> _Rows:
    """Read CSV or TSV; there is a header if a word of the first line is no number."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            delimiter = "\t" if "\t" in text.readline() else ","
            text.seek(0)
            words = next(csv.reader(text, delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise damaged(file, "CSV", error) from None
    header = not all(NUMBER.fullmatch(word) or NOT_FINITE.fullmatch(word) or not word for word in words)
    names = words if header else [str(column) for column in range(len(words))]
    columns.refuse_double_names(names, file)
    label = "label" if "label" in names else names[0]
    parts: list[tuple[NDArray[Any], NDArray[np.float32]]] = []
    place = Place(file, header + 1)
    try:
        with pa.OSFile(str(file)) as source:
            reader = arrow_csv.open_csv(
                source,
                read_options=arrow_csv.ReadOptions(
                    skip_rows=int(header), column_names=names, use_threads=False
                ),
                parse_options=arrow_csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={name: pa.string() for name in names}, strings_can_be_null=True
                ),
            )
            for batch in reader:
                values = {name: batch.column(name) for name in names if name != label}
                clicks = columns.flags(batch.column(label), label, place)
                parts.append((clicks, columns.feature_table(values, batch.num_rows, place)))
                place = Place(file, place.first_row + batch.num_rows)
                if progress is not None:
                    progress(source.tell(), source.size())
    except pa.ArrowException as error:
        raise damaged(file, "CSV", error) from None
    if not parts:
        raise InputError("has no line of data", file=file)
    return _Rows(
        np.concatenate([features for _, features in parts]),
        np.concatenate([clicks for clicks, _ in parts]),
        tuple(name for name in names if name != label),
        line=lambda row: int(row) + 1 + header,
    )


def _lists(file: Path, rows: _Rows) -> tuple[NDArray[np.int64], list[str] | None]:
    """Return where lists start, and the query of each list if the data has `qid:`."""
    size, lengths_file = rows.label.size, _beside(file, "query")
    named = rows.query
    changes = [row for row in range(size) if row == 0 or named[row] != named[row - 1]] if named else []
    if not lengths_file.exists():
        if not named:
            problem = f"the lengths of its lists are missing: {lengths_file.name} should stand beside it"
            raise InputError(problem, file=file)
        return np.array([*changes, size]), [named[row] for row in changes]
    lengths = np.array(_numbers(lengths_file, "the length of a list is a whole number, 1 or more", least=1))
    if lengths.sum() != size:
        problem = f"its lists have {lengths.sum()} rows together, but {file.name} has {size}"
        raise InputError(problem, file=lengths_file)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    inside = np.setdiff1d(changes, offsets)
    if inside.size:
        row = int(inside[0])
        problem = f"the query changes within a list of {lengths_file.name}"
        raise InputError(problem, file=file, row=rows.line(row), column="qid", value=named[row])
    return offsets, [named[row] for row in offsets[:-1]] if named else None


def _lines(file: Path, size: int | None = None) -> list[str]:
    """Return the lines of a file, one for each list or row."""
    try:
        lines = existing_file(file).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text; save it as UTF-8", file=file) from None
    if not lines[-1]:
        lines.pop()
    if size is not None and len(lines) != size:
        raise InputError(f"has {len(lines)} lines, but there must be {size}", file=file)
    return [line.strip() for line in lines]


def _numbers(
    file: Path, problem: str, *, least: int, size: int | None = None, form: str = r"([0-9]{1,15})"
) -> list[int]:
    found = []
    for number, line in enumerate(_lines(file, size), start=1):
        match = re.fullmatch(form, line, re.ASCII)
        if match is None or int(match[1]) < least:
            raise InputError(problem, file=file, row=number, column=file.suffix[1:], value=line)
        found.append(int(match[1]))
    return found


def _positions(file: Path, size: int, first: int | None) -> NDArray[np.int64]:
    """Return the position of each row from 1 on."""
    if first is not None and whole_number(first, "first_position") > 1:
        raise InputError("the first position is called 0 or 1", column="first_position", value=first)
    if not file.exists():
        problem = (
            f"the positions of its rows are missing: {file.name} should stand beside it, with a line each"
        )
        raise InputError(problem, file=file.with_suffix(""))
    rule = "a position is a whole number"
    found = np.array(_numbers(file, rule, least=0, size=size, form=POSITION.pattern), dtype=np.int64)
    positions = found + 1 - (int(found.min() > 0) if first is None else first)
    wrong = np.flatnonzero((positions < 1) | (positions > DEEPEST_POSITION))
    if wrong.size:
        problem = f"a position is a whole number from {first or 0} to {DEEPEST_POSITION}"
        row = int(wrong[0])
        raise InputError(problem, file=file, row=row + 1, column="position", value=int(found[row]))
    return positions


def _propensities(file: Path, size: int, weights: Weights | None) -> NDArray[np.float64] | None:
    if weights not in (None, "inverse-propensity", "ignore"):
        raise InputError("must be 'inverse-propensity' or 'ignore'", column="weights", value=weights)
    if not file.exists() or weights == "ignore":
        return None
    if weights is None:
        problem = (
            "there are weights; say what they are: 'inverse-propensity' if each is one over the propensity"
            " of its row, or 'ignore' if they do not matter here"
        )
        raise InputError(problem, file=file, column="weights")
    found = columns.numbers(pa.array(_lines(file, size), pa.string()), "weight", Place(file))
    wrong = np.flatnonzero(~(found >= 1))
    if wrong.size:
        problem = "one over a propensity is 1 or more"
        raise InputError(
            problem, file=file, row=int(wrong[0]) + 1, column="weight", value=float(found[wrong[0]])
        )
    return np.asarray(1 / found, dtype=np.float64)


def _ids(file: Path, size: int, otherwise: list[str] | None) -> Ids | None:
    """Return the ids of a file, or others; whole numbers if all are."""
    texts = _lines(file, size) if file.exists() else otherwise
    if texts is None:
        return None
    if "" in texts:
        raise InputError("an id is missing", file=file, row=texts.index("") + 1, column=file.suffix[1:])
    coder = Coder(file.suffix[1:])
    codes = coder.encode(pa.array(texts, pa.string()), Place(file))
    return np.asarray(coder.ids(whole_if_possible=True)[codes])


def write_lightgbm_log(log: ClickLog, path: str | Path) -> list[Path]:
    """Write a click log for LightGBM, with labels that are clicks; return the files written.

    The data is `label 0:value 1:value ...`; lengths of lists and positions stand beside it in `.query` and
    `.position`, and what LightGBM has no place for in `.query_id`, `.doc_id` and `.item_group`. Candidates
    that were not shown and planted items are left out, and so are propensities and times.
    """
    target, data = Path(path), log.data
    if not data.features.shape[1]:
        raise InputError("there are no features to write", file=target, column="features")
    if not log.click.any():
        raise no_clicks(target)
    shown = np.flatnonzero(log.position != NOT_SHOWN)
    row, impression = log.row_of_entry[shown], log.impression_of_entry[shown]
    kept, lengths = np.unique(impression, return_counts=True)
    beside: dict[str, Any] = {"query": lengths.tolist(), "position": log.position[shown].tolist()}
    if data.query_id is not None:
        beside["query_id"] = data.query_id[log.lists[kept]].tolist()
    if data.doc_id is not None:
        beside["doc_id"] = data.doc_id[row].tolist()
    if data.group_names:
        names = np.array([*data.group_names, ""], dtype=np.dtypes.StringDType())
        beside["item_group"] = names[np.where(data.group == UNKNOWN_GROUP, -1, data.group)[row]].tolist()
    for name, values in beside.items():
        _refuse_lines(values, target, name)
    with _written(target, beside) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for start in range(0, row.size, ROWS_A_WRITE):
            part = slice(start, start + ROWS_A_WRITE)
            values = data.features[row[part]]
            words = [
                pc.binary_join_element_wise(f"{column}:", pa.array(values[:, column]).cast(pa.string()), "")
                for column in range(values.shape[1])
            ]
            label = pa.array(log.click[shown[part]].astype(np.int8)).cast(pa.string())
            file.writelines(
                f"{line}\n" for line in pc.binary_join_element_wise(label, *words, " ").to_pylist()
            )
    return [target, *(_beside(target, name) for name in beside)]


def _refuse_lines(values: list[Any], file: Path, column: str) -> None:
    """Refuse text that would not come back from a line of its own as it was."""
    for number, value in enumerate(values, start=1):
        text = str(value)
        if text != text.strip() or "\n" in text or "\r" in text or (column != "item_group" and not text):
            problem = "must be one line of text without blanks around it"
            raise InputError(problem, file=file, row=number, column=column, value=value)


@contextmanager
def _written(target: Path, beside: dict[str, list[Any]]) -> Iterator[Path]:
    """Give a place for the data; it and the files beside it take their names together."""
    with ExitStack() as stack:
        temporary = stack.enter_context(atomic_write(target))
        for name, values in beside.items():
            other = stack.enter_context(atomic_write(_beside(target, name)))
            other.write_text("".join(f"{value}\n" for value in values), encoding="utf-8")
        yield temporary
