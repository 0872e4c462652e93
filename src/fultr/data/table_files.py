"""Tables in Parquet and CSV files: read in batches, written in parts, with our metadata inside the file.

Parquet holds the metadata in its schema. A CSV file holds it in a first line that starts with `# fultr`, so
that it cannot be parted from the table; the usual readers skip such a line when told that `#` is a comment.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from fultr.arguments import Progress
from fultr.data.columns import Place, refuse_double_names
from fultr.errors import InputError
from fultr.files import existing_file

METADATA_KEY = b"fultr"
CSV_MARK = "# fultr "
FORMAT_VERSION = 1
ROWS_A_BATCH = 131_072
CSV_BLOCK = 8 << 20
UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, MemoryError)
"""What pyarrow raises for damaged files: names that are no text and sizes that are too large, too."""

Batch = dict[str, pa.Array]


@dataclass(frozen=True)
class Table:
    """A table that can be read batch by batch, each with the place of its rows.

    `rows` is how many there are, if that is known beforehand.
    """

    schema: pa.Schema
    metadata: Mapping[str, Any]
    batches: Callable[[list[str]], Iterator[tuple[Batch, Place]]]
    file: Path | None = None
    is_text: bool = False
    rows: int = 0

    def __post_init__(self) -> None:
        refuse_double_names(self.schema.names, self.file)

    @property
    def own_fields(self) -> list[pa.Field]:
        """The fields of all columns but those that pandas made of the index of a frame."""
        index = index_columns(self.schema)
        return [field for field in self.schema if field.name not in index]


def index_columns(schema: pa.Schema) -> set[str]:
    """Return the columns that hold the index of a pandas frame, named or not; they are no data."""
    try:
        index = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
        return {name for name in index if isinstance(name, str)}
    except (LookupError, TypeError, ValueError):
        return set()


def open_table(path: str | Path, progress: Progress | None = None) -> Table:
    """Open a Parquet or CSV file, by its ending; `progress` is told how much of it has been read."""
    file = existing_file(path)
    told = progress or (lambda _done, _total: None)
    return _open_csv(file, told) if is_csv(file) else _open_parquet(file, told)


def is_csv(path: str | Path) -> bool:
    """Say whether a name is that of a CSV file, or else of a Parquet file; any other is refused."""
    ending = Path(path).suffix.lower()
    if ending not in (".csv", ".parquet", ".pq"):
        raise InputError("tables are .parquet or .csv files; name it so", file=path, value=ending)
    return ending == ".csv"


def table_of(frame: Any, file: Path | None = None) -> Table:
    """Treat a pandas, polars or Arrow frame, or a mapping of columns, as a table."""
    try:
        table = frame if isinstance(frame, pa.Table) else pa.table(frame)
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise InputError(f"cannot be read as a table: {error}", value=type(frame).__name__) from None

    def batches(names: list[str]) -> Iterator[tuple[Batch, Place]]:
        first_row = 1
        for batch in table.select(names).to_batches(max_chunksize=ROWS_A_BATCH):
            yield dict(zip(names, batch.columns, strict=True)), Place(file, first_row)
            first_row += batch.num_rows

    return Table(table.schema, {}, batches, file, rows=table.num_rows)


def write_table(
    path: Path, schema: pa.Schema, metadata: Mapping[str, Any], parts: Iterable[pa.Table], *, as_csv: bool
) -> None:
    """Write the parts of a table after one another."""
    content = json.dumps({"version": FORMAT_VERSION, **metadata}, sort_keys=True, allow_nan=False)
    if as_csv:
        with path.open("wb") as file:
            file.write(f"{CSV_MARK}{content}\n".encode())
            with arrow_csv.CSVWriter(file, schema) as writer:
                for part in parts:
                    writer.write_table(part.cast(schema))
        return
    schema = schema.with_metadata({METADATA_KEY: content.encode()})
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(part.cast(schema))


def parse_metadata(text: bytes | str | None, file: Path) -> dict[str, Any]:
    """Read our metadata; refuse what a newer version wrote."""
    if text is None:
        return {}
    try:
        content = json.loads(text)
    except ValueError:
        raise InputError("its fultr metadata is damaged", file=file) from None
    if not isinstance(content, dict):
        raise InputError("its fultr metadata is damaged", file=file)
    version = content.get("version")
    if type(version) is not int:
        raise InputError("its fultr metadata is damaged: it has no version", file=file)
    if version > FORMAT_VERSION:
        problem = f"was written by a newer fultr (format {version}, not {FORMAT_VERSION}); upgrade fultr"
        raise InputError(problem, file=file)
    return content


def _open_parquet(file: Path, progress: Progress) -> Table:
    try:
        footer = parquet.read_metadata(file)
        schema = footer.schema.to_arrow_schema()
    except UNREADABLE as error:
        raise damaged(file, "Parquet", error) from None

    def batches(names: list[str]) -> Iterator[tuple[Batch, Place]]:
        first_row = 1
        try:
            with parquet.ParquetFile(file, pre_buffer=False) as opened:
                for batch in opened.iter_batches(ROWS_A_BATCH, columns=names):
                    yield {name: batch.column(name) for name in names}, Place(file, first_row)
                    first_row += batch.num_rows
                    progress(first_row - 1, footer.num_rows)
        except InputError:
            raise  # of whoever is using the batch
        except UNREADABLE as error:
            raise damaged(file, "Parquet", error) from None

    about = parse_metadata((schema.metadata or {}).get(METADATA_KEY), file)
    return Table(schema, about, batches, file, rows=footer.num_rows)


def _open_csv(file: Path, progress: Progress) -> Table:
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            first = text.readline()
            marked = first.startswith(CSV_MARK)
            reader = csv.reader(text if marked else itertools.chain([first], text))
            names = next((row for row in reader if row), [])
            header = marked + reader.line_num
    except UnicodeDecodeError:
        raise not_utf8(file) from None
    except csv.Error as error:
        raise damaged(file, "CSV", error) from None
    return Table(
        pa.schema([(name, pa.string()) for name in names]),
        parse_metadata(first[len(CSV_MARK) :] if marked else None, file),
        lambda wanted: _csv_batches(file, names, wanted, header, progress),
        file,
        is_text=True,
    )


def _csv_batches(
    file: Path, names: list[str], wanted: list[str], header: int, progress: Progress
) -> Iterator[tuple[Batch, Place]]:
    ragged: list[arrow_csv.InvalidRow] = []

    def skip(row: arrow_csv.InvalidRow) -> str:
        ragged.append(row)
        return "skip"

    place = Place(file, line_of=lambda number: _line_of(file, header, number))
    try:
        with pa.OSFile(str(file)) as source:
            reader = arrow_csv.open_csv(
                source,
                read_options=arrow_csv.ReadOptions(
                    skip_rows=header, column_names=names, block_size=CSV_BLOCK, use_threads=False
                ),
                parse_options=arrow_csv.ParseOptions(invalid_row_handler=skip, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={name: pa.string() for name in names},
                    include_columns=wanted,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            for batch in reader:
                _refuse_ragged(ragged, place, header)
                yield {name: batch.column(name) for name in wanted}, place
                place = replace(place, first_row=place.first_row + batch.num_rows)
                progress(source.tell(), source.size())
    except pa.ArrowException as error:
        if "Empty CSV" in str(error):
            return
        raise not_utf8(file) if "UTF8" in str(error) else damaged(file, "CSV", error) from None
    _refuse_ragged(ragged, place, header)


def _line_of(file: Path, header: int, number: int) -> int:
    """Return the line that a row of data starts in: blank lines and lines inside quotes count, too."""
    with file.open(encoding="utf-8", errors="replace", newline="") as text:
        for _ in range(header):
            text.readline()
        reader, before = csv.reader(text), 0
        try:
            for row in reader:
                number -= bool(row)
                if not number:
                    return header + before + 1
                before = reader.line_num
        except csv.Error:  # a field too long for Python; without such a look, rows and lines are the same
            pass
    return header + before + number


def _refuse_ragged(rows: list[arrow_csv.InvalidRow], place: Place, header: int) -> None:
    if rows:
        row = rows[0]
        problem = f"the row has {row.actual_columns} values, but there are {row.expected_columns} columns"
        raise InputError(problem, file=place.file, row=place.shown(row.number - header), value=row.text)


def not_utf8(file: Path) -> InputError:
    """Return the error of a text file in another encoding."""
    return InputError("is no readable CSV file: it is not UTF-8 text; save it as UTF-8", file=file)


def damaged(file: Path, kind: str, error: Exception) -> InputError:
    """Return an error that says in a line why a file cannot be read."""
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InputError(f"is no readable {kind} file, or damaged: {first_line}", file=file)
