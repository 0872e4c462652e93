"""The one door for foreign columns: from Arrow arrays of any type to checked numpy arrays.

Every function names the file, row, column and value of the first thing that is wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fultr.arguments import LARGEST_WHOLE
from fultr.data.ids import ID_TOO_LARGE, IdCodes, Ids, as_text
from fultr.errors import InputError

NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)
"""A decimal number; its repeats never give back what they matched, so that the time is linear in the text."""

NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)

FEATURE_PREFIX = "feature_"
"""What the name of a column starts with that holds one feature."""

LIST_COLUMN = "features"
"""The name of a column that holds all features of a row as one list."""

TIMES = (pa.int64(), *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")))
"""What text may hold as a time, in the order in which it is tried."""

ROWS_A_CHECK = 65_536
"""Rows of features looked at together when they are checked, so that checking needs little memory."""

MOST_NAMES = 20
"""Names that a message lists: a table may have thousands of columns, or a log of groups."""

TO_FILL = (
    "; fill in what is missing, or let the policy do it: {missing} 'mean' or 'indicator' when it is trained,"
    " with {keep_missing} where a log is counted before that"
)
"""What can be done about a missing feature."""

NO_PROPENSITY = "a propensity must lie above 0 and be at most 1"


@dataclass(frozen=True)
class Location:
    """Where rows come from: the file, if any, and the number of each row, or of the first, in the table.

    `line_of` turns the number of a row into the line of a text file. That may mean to read the file again,
    so it is called only for an error.
    """

    file: str | Path | None = None
    first_row: int = 1
    numbers: NDArray[np.int64] | None = None
    line_of: Callable[[int], int] | None = None

    def rows(self, size: int) -> NDArray[np.int64]:
        """Return the numbers of all rows."""
        return np.arange(self.first_row, self.first_row + size) if self.numbers is None else self.numbers

    def shown(self, number: int) -> int:
        """Return the number of a row as a person would count it."""
        return int(number) if self.line_of is None else self.line_of(int(number))

    def error(self, problem: str, index: int, column: str, value: object = None) -> InputError:
        """Return an error about the value at `index` of these rows."""
        number = self.first_row + int(index) if self.numbers is None else int(self.numbers[index])
        return InputError(problem, file=self.file, row=self.shown(number), column=column, value=value)

    def check(
        self,
        wrong: Any,
        problem: str,
        column: str,
        values: Any = None,
        show: Callable[[Any], object] | None = None,
    ) -> None:
        """Raise an error about the first of these rows that is wrong, with its value as `show` gives it."""
        mask = as_numpy(wrong) if isinstance(wrong, pa.Array) else np.asarray(wrong)
        if mask.any():
            index = int(np.argmax(mask))
            value = None if values is None else values[index]
            value = value.as_py() if isinstance(value, pa.Scalar) else value
            raise self.error(problem, index, column, value if show is None else show(value))


IN_MEMORY = Location()
"""The location of rows that were passed as arrays."""


def require_columns(present: Sequence[str], required: Iterable[str], file: str | Path | None) -> None:
    """Raise if a required column is missing, naming the one that was probably meant."""
    for column in required:
        if column not in present:
            meant = difflib.get_close_matches(column, present, n=1, cutoff=0.6)
            others = f"there are: {listed(present) or 'none'}"
            hint = f"is '{meant[0]}' meant? Rename it" if meant else others
            raise InputError(f"the column is missing; {hint}", file=file, column=column)


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Return the first of some names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def check_column_names(names: Sequence[str], file: str | Path | None = None) -> None:
    """Raise if two columns have one name, or if a name is one that files cannot hold."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError("two columns have this name", file=file, column=name)
        if "\0" in name:
            raise InputError("the name of a column cannot have a NUL byte", file=file, column=name)
        seen.add(name)


def plain(column: Any) -> pa.Array:
    """Return a column as one Arrow array, without dictionary encoding, its text of the usual kind."""
    array = column
    if isinstance(column, pa.ChunkedArray):
        array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], type=column.type)
    if pa.types.is_dictionary(array.type):  # what polars calls categories is text of a kind that Arrow
        return plain(array.dictionary).take(array.indices)  # cannot decode
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def as_numpy(array: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return numbers, flags or times as numpy holds them, NaN where one is missing.

    Arrow's own `to_numpy` loads pandas wherever it is installed, which takes longer than all else here.
    """
    return np.asarray(pl.Series(pl.from_arrow(array)).to_numpy())


def is_text(kind: Any) -> bool:
    """Say whether an Arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: Any) -> bool:
    """Say whether an Arrow type holds numbers, or nothing but missing ones."""
    return bool(_is_code(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_code(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def ids(column: Any, name: str, location: Location, *, as_text: bool = False) -> pa.Array:
    """Return ids as Arrow int64 or string, none missing."""
    array = plain(column)
    if array.null_count:
        location.check(pc.is_null(array), "an id is missing", name)
    if is_text(array.type):
        location.check(as_numpy(pc.binary_length(array)) == 0, "an id is missing", name)
        return array.cast(pa.string())
    if pa.types.is_integer(array.type):
        return array.cast(pa.string()) if as_text else _int64(array, name, location, ID_TOO_LARGE)
    raise location.error(f"ids must be integers or text, not {array.type}", 0, name, _first(array))


def arrow_ids(ids: Ids) -> pa.Array:
    """Return ids as numpy holds them as an Arrow array."""
    return pa.array(ids.tolist(), type=pa.large_string()) if ids.dtype.kind == "T" else pa.array(ids)


def _int64(array: pa.Array, name: str, location: Location, problem: str) -> pa.Array:
    if array.type == pa.uint64():
        location.check(pc.greater(array, pa.scalar(LARGEST_WHOLE, pa.uint64())), problem, name, array)
    return array.cast(pa.int64())


def labels(column: Any, name: str, location: Location) -> pa.Array:
    """Return names, or integers as such, as Arrow strings, null where they are missing or empty."""
    array = plain(column)
    if is_text(array.type) or _is_code(array.type):
        texts = pl.Series(pl.from_arrow(array.cast(pa.string()))).replace("", None)
        return texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
    raise location.error(f"must be names or integers, not {array.type}", 0, name, _first(array))


def encode_labels(
    column: Any, location: Location, codes: IdCodes, names: Sequence[str] | None = None
) -> NDArray[np.int64]:
    """Return a code for each group label, -1 where it is missing; one not among `names` is an error."""
    if pa.types.is_dictionary(column.type):  # then few labels need to be looked at
        few = labels(column.dictionary, "group", location)
        of_label = np.append(codes.encode(pl.Series(pl.from_arrow(few))), -1)
        index = pl.Series(pl.from_arrow(column.indices)).cast(pl.Int64).fill_null(-1)
        code = np.asarray(of_label[index.to_numpy()])
    else:
        code = codes.encode(pl.Series(pl.from_arrow(labels(column, "group", location))))
    if names is not None:
        unknown = np.array([*(name not in names for name in codes.texts), False])
        problem = f"unknown group; expected one of: {listed(names)}"
        location.check(unknown[code], problem, "group", column)
    return code


def numbers(column: Any, name: str, location: Location, *, flags_too: bool = False) -> NDArray[np.float64]:
    """Return numbers as float64, NaN where they are missing; with `flags_too`, true is 1 and false 0."""
    array = plain(column)
    if is_text(array.type):
        array = _parsed(array, name, location, flags_too=flags_too)
    elif not is_number(array.type):
        raise location.error(f"must be numbers, not {array.type}", 0, name)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    return as_numpy(array.cast(pa.float64(), safe=False))


def _parsed(array: pa.Array, name: str, location: Location, *, flags_too: bool) -> pa.Array:
    """Read text as numbers: decimal digits only, whatever else polars or Python would take for a number."""
    texts = pl.Series(pl.from_arrow(array)).str.strip_chars()
    if flags_too:
        lower = texts.str.to_lowercase()
        texts = lower.replace({"true": "1", "false": "0"}).zip_with(lower.is_in(["true", "false"]), texts)
    values = texts.cast(pl.Float64, strict=False)
    for index in (texts.is_not_null() & ~values.is_finite().fill_null(False)).arg_true():
        if not NUMBER.fullmatch(texts[index]):
            if NOT_FINITE.fullmatch(texts[index]):
                raise location.error("must be a finite number", index, name, float(texts[index]))
            raise location.error("must be a number", index, name, array[index].as_py())
    return values.to_arrow()


def _small_integers(column: Any, least: int, most: int) -> NDArray[Any] | None:
    """Return a column of integers, if none is missing and all lie in a range: no other check is needed."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return None
    values = as_numpy(column)
    within = not values.size or (least <= int(values.min()) and int(values.max()) <= most)
    return values if within else None


def _outside(values: NDArray[np.float64], least: int, most: int) -> NDArray[np.bool_]:
    """Return which values are no integers from `least` to `most`."""
    return np.asarray(~((values >= least) & (values <= most) & (values == np.floor(values))))


def positions(column: Any, name: str, location: Location, deepest: int) -> NDArray[np.int32]:
    """Return positions from 1 on, 0 where they are missing."""
    fast = _small_integers(column, 1, deepest)
    if fast is not None:
        return fast.astype(np.int32, copy=False)
    values = numbers(column, name, location)
    shown = ~np.isnan(values)
    problem = f"a position is an integer from 1 to {deepest}; leave it empty if the item was not shown"
    location.check(shown & _outside(values, 1, deepest), problem, name, values, _written)
    return np.where(shown, values, 0).astype(np.int32)


def flags(
    column: Any, name: str, location: Location, *, missing: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Return 0/1 or true/false values; a missing one is False where `missing` allows it, else an error."""
    fast = _small_integers(column, 0, 1)
    if fast is not None:
        return fast.astype(np.bool_)
    values = numbers(column, name, location, flags_too=True)
    allowed = np.isnan(values) & (True if missing is None else missing)
    location.check(_outside(values, 0, 1) & ~allowed, "must be 0 or 1", name, values, _written)
    return np.asarray(values == 1)


def propensities(
    column: Any, name: str, location: Location, needed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return probabilities above 0 and at most 1; NaN where they are not needed."""
    values = numbers(column, name, location)
    location.check(needed & ~((values > 0) & (values <= 1)), NO_PROPENSITY, name, values)
    return np.where(needed, values, np.nan)


def timestamps(column: Any, name: str, location: Location) -> NDArray[Any]:
    """Return times as they are numbered (int64), or as dates (datetime64, microseconds, UTC)."""
    array = plain(column)
    if array.null_count:
        location.check(pc.is_null(array), "a time is missing", name)
    if pa.types.is_integer(array.type):
        array = _int64(array, name, location, "an integer as a time must fit 64 bits with a sign")
    elif is_text(array.type):
        array = _parsed_times(array, name, location)
    else:
        try:
            array = array.cast(pa.timestamp("us"), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            problem = f"must be integers or dates, not {array.type}"
            raise location.error(problem, 0, name, _first(array)) from None
    return as_numpy(array)


def _parsed_times(array: pa.Array, name: str, location: Location) -> pa.Array:
    """Read text as integers, or as dates: all with a time zone, or all without."""
    for kind in TIMES:
        with suppress(pa.ArrowInvalid):
            times = array.cast(kind)
            return times if kind == pa.int64() else times.cast(pa.timestamp("us"), safe=False)
    first = next((kind for kind in TIMES if _can_be(array[:1], kind)), None)
    others = (row for row in range(len(array)) if first is None or not _can_be(array[row : row + 1], first))
    index = next(others)
    problem = "must be integers, or dates such as 2024-05-01 12:30:00, all of one form"
    raise location.error(problem, index, name, array[index].as_py())


def _can_be(array: pa.Array, kind: Any) -> bool:
    with suppress(pa.ArrowInvalid):
        array.cast(kind)
        return True
    return False


def context_labels(column: Any, name: str, location: Location) -> pl.Series:
    """Return names, or integers as such, as text; none may be missing."""
    text = labels(column, name, location)
    problem = "must be there for each impression; give what is not known a name of its own"
    location.check(pc.is_null(text), problem, name)
    return pl.Series(pl.from_arrow(text))


def text_labels(column: Any, name: str, location: Location) -> NDArray[Any]:
    """Return names as numpy holds text; see `context_labels`."""
    return as_text(context_labels(column, name, location))


def integers_between(least: int, most: int, rule: str) -> Callable[[Any, str, Location], NDArray[Any]]:
    """Return a check that gives integers from `least` to `most`; `rule` is the error of any other."""

    def check(column: Any, name: str, location: Location) -> NDArray[Any]:
        values = numbers(column, name, location)
        location.check(_outside(values, least, most), rule, name, plain(column))
        return values.astype(np.int64)

    return check


def feature_table(
    table: Mapping[str, Any],
    rows: int,
    location: Location,
    categories: Mapping[str, IdCodes] | None = None,
    *,
    allows_missing: bool = False,
) -> NDArray[np.float32]:
    """Return features as rows x features, from one list column or from a column for each feature.

    `categories` are the columns that hold categories, and what gives them codes.
    """
    names = list(table)
    if names == [LIST_COLUMN]:
        values = _from_lists(plain(table[LIST_COLUMN]), location)
        numbered = [f"{LIST_COLUMN}[{index}]" for index in range(values.shape[1])]
        return finite_features(values, numbered, location, allows_missing=allows_missing)
    categories = categories or {}
    features = np.empty((rows, len(names)), dtype=np.float32)
    with np.errstate(over="ignore"):
        for index, name in enumerate(names):
            features[:, index] = _feature(table[name], name, location, categories.get(name))
    if not np.isfinite(features).all():
        for name in names:  # names the value as it was before it became a float32
            column = _feature(table[name], name, location, categories.get(name))[:, None]
            finite_features(column, [name], location, allows_missing=allows_missing)
    return features


def _category_codes(array: pa.Array, name: str, location: Location, codes: IdCodes) -> NDArray[Any]:
    """Return codes of text, of true and false, or of integers; NaN where one is missing or empty."""
    if pa.types.is_floating(array.type):  # what pandas makes of integers if some are missing
        values = as_numpy(array)
        whole = np.isnan(values) | ((values == np.floor(values)) & (np.abs(values) < 2.0**63))
        problem = "a category must be text, true or false, or an integer of 64 bits"
        location.check(~whole, problem, name, values)
        array = pl.Series(values).fill_nan(None).cast(pl.Int64).to_arrow()
    if not (is_text(array.type) or _is_code(array.type)):
        problem = f"a category must be text, true or false, or an integer, not {array.type}"
        raise location.error(problem, 0, name, _first(array))
    encoded = codes.encode(pl.Series(pl.from_arrow(array.cast(pa.string()))).replace("", None))
    return np.where(encoded < 0, np.nan, encoded)


def _feature(column: Any, name: str, location: Location, codes: IdCodes | None = None) -> NDArray[Any]:
    """Return a feature as numbers; a date or a time is none."""
    array = plain(column)
    if codes is not None:
        return _category_codes(array, name, location, codes)
    if array.type == pa.float32() and not array.null_count:
        return as_numpy(array)
    is_time = pa.types.is_temporal(array.type)
    if is_text(array.type):
        first = (array.drop_null() if array.null_count else array)[:1]
        is_time = any(_can_be(first, kind) for kind in TIMES[1:]) and not _can_be(first, pa.float64())
    if is_time and len(array) > array.null_count:
        value = array.drop_null()[0].as_py()
        problem = "a date or a time is no feature; make a number of it, such as an age in days"
        raise location.error(problem, int(np.argmax(pc.is_valid(array))), name, str(value))
    return numbers(array, name, location, flags_too=True)


def finite_features(
    given: NDArray[Any], names: Sequence[str], location: Location, *, allows_missing: bool = False
) -> NDArray[np.float32]:
    """Return features as float32; one that is not finite is an error, unless it is missing and may be."""
    with np.errstate(over="ignore"):
        features = np.ascontiguousarray(given, dtype=np.float32)
    for start in range(0, features.shape[0], ROWS_A_CHECK):
        block = features[start : start + ROWS_A_CHECK]
        finite = ~np.isinf(block) if allows_missing else np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0] + [start, 0]
            value = given[row, column]
            error = location.error("a feature must be a finite float32", row, names[column], value)
            raise error.adding(TO_FILL, "missing", "keep_missing") if np.isnan(value) else error
    return features


def _from_lists(array: pa.Array, location: Location) -> NDArray[Any]:
    kind = array.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise location.error(f"must be lists of numbers, not {kind}", 0, LIST_COLUMN)
    location.check(pc.is_null(array), "the features are missing", LIST_COLUMN)
    widths = as_numpy(pc.list_value_length(array)).astype(np.int64)
    other = np.flatnonzero(widths != widths[:1])
    if other.size:
        first_row = location.shown(location.rows(widths.size)[0])
        problem = f"there are {widths[other[0]]} features, but {widths[0]} in row {first_row}"
        raise location.error(problem, other[0], LIST_COLUMN)
    return as_numpy(array.flatten()).reshape(len(array), int(widths[0]) if widths.size else 0)


def _first(array: pa.Array) -> object:
    return array[0].as_py() if len(array) else None


def _written(value: float) -> object:
    """Return a number as a person would write it: an integer without a fraction, a missing one not at all."""
    return None if np.isnan(value) else int(value) if float(value).is_integer() else float(value)
