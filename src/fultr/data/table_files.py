"""Tables in files: read in batches, written in parts, with our metadata inside the file.

Parquet and Arrow files hold the metadata in their schema. A CSV file holds it in a first line that starts
with `# fultr`, so that it cannot be parted from the table; the usual readers skip such a line when told that
`#` is a comment. Files are read by Arrow, local ones and those of an object storage alike: polars fills the
missing values of a CSV row that is too short with nulls, and says nothing.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.fs as arrow_fs
import pyarrow.json as arrow_json
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.data.columns import Location, check_column_names
from fultr.data.json_lines import ObjectLines
from fultr.errors import InputError
from fultr.files import existing_file, parse_json

METADATA_KEY = b"fultr"
CSV_MARK = "# fultr "
FORMAT_VERSION = 1
"""The version of our metadata; a file of a later one is refused."""

ROWS_A_BATCH = 1 << 19
"""Rows that are read together at most: about 30 MB of a log without features."""

VALUES_A_BATCH = 1 << 23
"""Values that are read together at most: 64 MB of a table with many features."""

TEXT_BLOCK = 16 << 20
"""Bytes of a text file that are read together."""

COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
"""The compression of text files, by their last ending."""

KINDS = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".csv": "CSV",
    ".arrow": "Arrow",
    ".ipc": "Arrow",
    ".feather": "Arrow",
    ".ndjson": "NDJSON",
    ".jsonl": "NDJSON",
}
"""What a file holds, by its ending, that of a compression aside."""

UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, MemoryError)
"""What pyarrow raises for damaged files: names that are no text and sizes that are too large, too."""

Batch = dict[str, pa.Array]


@dataclass(frozen=True)
class Table:
    """A table that can be read batch by batch, each with the location of its rows.

    `names` says what the file calls a column, for tables made from another layout.
    """

    schema: pa.Schema
    metadata: Mapping[str, Any]
    batches: Callable[[list[str]], Iterator[tuple[Batch, Location]]]
    file: str | Path | None = None
    is_text: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            names = self.schema.names
        except UnicodeDecodeError:
            raise InputError("the name of a column is not UTF-8 text", file=self.file) from None
        check_column_names(names, self.file)

    @property
    def own_fields(self) -> list[pa.Field]:
        """The fields of all columns but those that pandas made of the index of a frame."""
        index: list[Any] = []
        with suppress(LookupError, RecursionError, TypeError, ValueError):
            index = list(json.loads((self.schema.metadata or {})[b"pandas"])["index_columns"])
        return [field for field in self.schema if field.name not in index]

    def derived(
        self, names: Mapping[str, str], added: Mapping[str, Callable[[NDArray[np.int64]], pa.Array]]
    ) -> Table:
        """Return the table with columns under new names, and with columns made of the numbers of rows.

        `names` has the column of each new name. Columns that are in neither are left out.
        """

        def batches(needed: list[str]) -> Iterator[tuple[Batch, Location]]:
            own = {name: names[name] for name in needed if name in names}
            read = list(dict.fromkeys(own.values())) or self.schema.names[:1]
            for batch, location in self.batches(read):
                rows = location.rows(len(batch[read[0]]))
                added_columns = {name: added[name](rows) for name in needed if name in added}
                yield {**{name: batch[column] for name, column in own.items()}, **added_columns}, location

        fields = [self.schema.field(column).with_name(name) for name, column in names.items()]
        fields += [pa.field(name, make(np.arange(0)).type) for name, make in added.items()]
        return replace(self, schema=pa.schema(fields, self.schema.metadata), batches=batches)


def open_table(path: str | Path, progress: Progress | None = None) -> Table:
    """Open a Parquet, CSV, Arrow or NDJSON file, by its ending."""
    file = path if is_address(path) else existing_file(path)
    report = progress or (lambda _done, _total: None)
    openers = {"CSV": open_csv, "Parquet": _open_parquet, "Arrow": _open_arrow, "NDJSON": _open_ndjson}
    return openers[kind_of(file)](file, report)


def is_address(path: str | Path) -> bool:
    """Say whether a name is an address in an object storage, such as s3://bucket/clicks.parquet."""
    return "://" in str(path)


def kind_of(path: str | Path) -> str:
    """Return what a file holds, by its ending; any other ending is refused."""
    name = Path(name_of(path))
    ending = name.suffix.lower()
    kind = KINDS.get(Path(name.stem).suffix.lower() if ending in COMPRESSED else ending)
    if kind is None or (ending in COMPRESSED and kind not in ("CSV", "NDJSON")):
        problem = "tables are .parquet, .csv, .arrow or .ndjson files (text also .gz or .zst); name it so"
        raise InputError(problem, file=path, value=name.suffix)
    return kind


def name_of(file: str | Path) -> str:
    """Return the last part of a file's path or address, without what an address says of the storage."""
    return Path(str(file).partition("?")[0] if is_address(file) else file).name


def is_csv(path: str | Path) -> bool:
    """Say whether a file to be written is a CSV file, or else a Parquet file; any other is refused."""
    ending = Path(path).suffix.lower()
    if ending not in (".csv", ".parquet", ".pq"):
        raise InputError("tables are .parquet or .csv files; name it so", file=path, value=ending)
    return ending == ".csv"


def open_bytes(file: str | Path, *, in_place: bool = False) -> pa.NativeFile:
    """Open a file to be read from anywhere in it; `in_place` maps a local one into memory."""
    try:
        if not is_address(file):
            return pa.memory_map(str(file)) if in_place else pa.OSFile(str(file))
        system, path = arrow_fs.FileSystem.from_uri(str(file))
        return system.open_input_file(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot be read: {first_line(error)}", file=file) from None


def decompressed(source: pa.NativeFile, file: str | Path) -> pa.NativeFile:
    """Return a text file without its compression, to be read from its beginning."""
    compression = COMPRESSED.get(Path(name_of(file)).suffix.lower())
    return source if compression is None else pa.CompressedInputStream(source, compression)


def file_digest(file: str | Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open_bytes(file) as source:
        return hashlib.file_digest(io.BufferedReader(source, 1 << 20), "sha256").hexdigest()


def table_of(frame: Any, file: str | Path | None = None) -> Table:
    """Treat a pandas, polars or Arrow frame, or a mapping of columns, as a table."""
    if isinstance(frame, pl.DataFrame):
        check_column_names(frame.columns, file)  # of a NUL byte polars' own export would make a panic
    try:
        table = frame if isinstance(frame, pa.Table) else pa.table(frame)
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise InputError(f"cannot be read as a table: {error}", value=type(frame).__name__) from None

    def batches(names: list[str]) -> Iterator[tuple[Batch, Location]]:
        return _located(table.select(names).to_batches(max_chunksize=ROWS_A_BATCH), names, file)

    return Table(table.schema, {}, batches, file)


def _located(
    batches: Iterable[pa.RecordBatch],
    names: list[str],
    file: str | Path | None,
    progress: Progress | None = None,
    rows: int = 0,
) -> Iterator[tuple[Batch, Location]]:
    """Yield the columns of batches, null where a batch does not have one, and the location of their rows."""
    first_row = 1
    for batch in batches:
        present, missing = batch.schema.names, pa.nulls(batch.num_rows)
        columns = {name: batch.column(name) if name in present else missing for name in names}
        for name, column in columns.items():
            _check_text(column, name, file)
        yield columns, Location(file, first_row)
        first_row += batch.num_rows
        if progress is not None:
            progress(first_row - 1, rows)
    if rows and first_row - 1 != rows:
        raise InputError(f"is damaged: it says that it has {rows} rows, and has {first_row - 1}", file=file)


def _check_text(column: pa.Array, name: str, file: str | Path | None) -> None:
    """Refuse text that is not UTF-8, which Arrow's readers pass on as it is."""
    try:
        if not pa.types.is_primitive(column.type):
            column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(f"is damaged: {first_line(error)}", file=file, column=name) from None


def arrow_table(frame: pl.DataFrame) -> pa.Table:
    """Return a polars frame as an Arrow table whose text every tool can read."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def write_table(
    path: Path,
    schema: pa.Schema,
    metadata: Mapping[str, Any],
    tables: Iterable[pa.Table],
    *,
    as_csv: bool = False,
    as_arrow: bool = False,
    compression: str | dict[str, str] = "zstd",
) -> None:
    """Write tables after one another, as Parquet by default.

    Without metadata, the file says nothing of fultr. `compression` may name that of some columns only.
    """
    content = json.dumps({"version": FORMAT_VERSION, **metadata}, sort_keys=True, allow_nan=False).encode()
    if metadata:
        schema = schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: content})
    with path.open("wb") as file:
        if as_csv:
            file.write(CSV_MARK.encode() + content + b"\n" if metadata else b"")
            writer = arrow_csv.CSVWriter(file, schema)
        elif as_arrow:
            writer = pa.ipc.new_file(file, schema)
        else:
            writer = parquet.ParquetWriter(file, schema, compression=compression)
        with writer:
            for table in tables:
                writer.write_table(table.select(schema.names).cast(schema))


def parse_metadata(text: bytes | str | None, file: str | Path) -> dict[str, Any]:
    """Read our metadata; refuse what a newer version wrote."""
    if text is None:
        return {}
    content = None
    with suppress(ValueError, RecursionError):
        parsed = parse_json(text.decode() if isinstance(text, bytes) else text)
        json.dumps(parsed, ensure_ascii=False).encode()  # escapes of JSON can make what is no text
        content = parsed
    if not isinstance(content, dict):
        raise InputError("its fultr metadata is damaged", file=file)
    version = content.get("version")
    if type(version) is not int:
        raise InputError("its fultr metadata is damaged: it has no version", file=file)
    if version > FORMAT_VERSION:
        problem = f"was written by a newer fultr, whose format is not {FORMAT_VERSION}; upgrade fultr"
        raise InputError(problem, file=file, value=version)
    return content


def schema_metadata(schema: pa.Schema, file: str | Path) -> dict[str, Any]:
    """Return our metadata that a schema holds; nothing if it holds none."""
    return parse_metadata((schema.metadata or {}).get(METADATA_KEY), file)


def read_arrow(file: str | Path) -> pa.Table:
    """Return the table of an Arrow file, its columns where they stand on disk."""
    try:
        table = pa.ipc.open_file(open_bytes(file, in_place=True)).read_all()
        table.validate(full=True)
    except UNREADABLE as error:
        raise damaged(file, "Arrow", error) from None
    return table


def _open_parquet(file: str | Path, progress: Progress) -> Table:
    try:
        with open_bytes(file) as source:
            footer = parquet.read_metadata(source)
        schema = footer.schema.to_arrow_schema()
        rows = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
        if min(rows, default=0) < 0 or sum(rows) != footer.num_rows:
            raise ValueError("its numbers of rows contradict each other")
    except UNREADABLE as error:
        raise damaged(file, "Parquet", error) from None

    def batches(names: list[str]) -> Iterator[tuple[Batch, Location]]:
        try:
            with open_bytes(file) as source, parquet.ParquetFile(source, pre_buffer=False) as opened:
                rows = min(ROWS_A_BATCH, VALUES_A_BATCH // max(len(names), 1) + 1)
                read = opened.iter_batches(rows, columns=names)
                yield from _located(read, names, file, progress, footer.num_rows)
        except InputError:
            raise  # of whoever is using the batch
        except UNREADABLE as error:
            raise damaged(file, "Parquet", error) from None

    return Table(schema, schema_metadata(schema, file), batches, file)


def _open_arrow(file: str | Path, _progress: Progress) -> Table:
    table = read_arrow(file)
    return replace(table_of(table, file), metadata=schema_metadata(table.schema, file))


def _open_ndjson(file: str | Path, progress: Progress) -> Table:
    """Open JSON lines, whose columns and types are those of the first block.

    They are read twice, since pyarrow loses what is null before the first value of a list of unknown type.
    """
    options = arrow_json.ReadOptions(block_size=TEXT_BLOCK, use_threads=False)

    @contextmanager
    def opened(schema: pa.Schema | None) -> Iterator[arrow_json.StreamingReader]:
        as_known = arrow_json.ParseOptions(explicit_schema=schema)
        with open_bytes(file) as raw, decompressed(raw, file) as source:
            try:
                lines = ObjectLines(source, file)
                yield arrow_json.open_json(lines, read_options=options, parse_options=as_known)
            except InputError:
                raise
            except UNREADABLE as error:
                raise damaged(file, "NDJSON", error) from None

    with opened(None) as first:
        schema = first.schema

    def batches(names: list[str]) -> Iterator[tuple[Batch, Location]]:
        with opened(schema) as reader:
            yield from _located(reader, names, file, progress)

    return Table(schema, {}, batches, file)


def open_csv(
    file: str | Path,
    progress: Progress,
    separator: str = ",",
    is_header: Callable[[list[str]], bool] = lambda _: True,
) -> Table:
    """Open a CSV file; columns are 0, 1, ... if its first line that is not blank is no header."""
    try:
        with open_bytes(file) as raw, _text(raw, file, "utf-8-sig") as text:
            first = text.readline()
            marked = first.startswith(CSV_MARK)
            reader = csv.reader(text if marked else itertools.chain([first], text), delimiter=separator)
            names = next((row for row in reader if row), [])
            header = marked + reader.line_num
            if not is_header(names):
                names, header = [str(column) for column in range(len(names))], int(marked)
    except UnicodeDecodeError:
        raise _not_utf8(file) from None
    except (csv.Error, OSError, pa.ArrowException) as error:
        raise damaged(file, "CSV", error) from None
    return Table(
        pa.schema([(name, pa.string()) for name in names]),
        parse_metadata(first[len(CSV_MARK) :] if marked else None, file),
        lambda needed: _csv_batches(file, names, needed, header, separator, progress),
        file,
        is_text=True,
    )


def _text(source: pa.NativeFile, file: str | Path, encoding: str, errors: str = "strict") -> io.TextIOWrapper:
    return io.TextIOWrapper(decompressed(source, file), encoding, errors, newline="")


def _csv_batches(
    file: str | Path, names: list[str], needed: list[str], header: int, separator: str, progress: Progress
) -> Iterator[tuple[Batch, Location]]:
    ragged: list[arrow_csv.InvalidRow] = []

    def skip(row: arrow_csv.InvalidRow) -> str:
        ragged.append(row)
        return "skip"

    location = Location(file, line_of=lambda number: _line_of(file, header, number))
    try:
        with open_bytes(file) as raw, decompressed(raw, file) as source:
            reader = arrow_csv.open_csv(
                source,
                read_options=arrow_csv.ReadOptions(
                    skip_rows=header, column_names=names, block_size=TEXT_BLOCK, use_threads=False
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=separator, invalid_row_handler=skip, newlines_in_values=True
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={name: pa.string() for name in names},
                    include_columns=needed,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
            for batch in reader:
                _check_ragged(ragged, location, header)
                yield {name: batch.column(name) for name in needed}, location
                location = replace(location, first_row=location.first_row + batch.num_rows)
                progress(raw.tell(), raw.size())
    except pa.ArrowException as error:
        if "Empty CSV" in str(error):
            return
        raise _not_utf8(file) if "UTF8" in str(error) else damaged(file, "CSV", error) from None
    _check_ragged(ragged, location, header)


def _line_of(file: str | Path, header: int, number: int) -> int:
    """Return the line that a row of data starts in: blank lines and lines inside quotes count, too."""
    with open_bytes(file) as raw, _text(raw, file, "utf-8", errors="replace") as text:
        for _ in range(header):
            text.readline()
        reader, before = csv.reader(text), 0
        with suppress(csv.Error):  # a field too long for Python: rows and lines are then taken to be the same
            for row in reader:
                number -= bool(row)
                if not number:
                    return header + before + 1
                before = reader.line_num
    return header + before + number


def _check_ragged(rows: list[arrow_csv.InvalidRow], location: Location, header: int) -> None:
    if rows:
        row = rows[0]
        problem = f"the row has {row.actual_columns} values, but there are {row.expected_columns} columns"
        raise InputError(problem, file=location.file, row=location.shown(row.number - header), value=row.text)


def _not_utf8(file: str | Path) -> InputError:
    return InputError("is no readable CSV file: it is not UTF-8 text; save it as UTF-8", file=file)


def damaged(file: str | Path, kind: str, error: Exception) -> InputError:
    """Return an error that says in a line why a file cannot be read."""
    return InputError(f"is no readable {kind} file, or damaged: {first_line(error)}", file=file)


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
