"""What results become: plain values for JSON and back, frames, and tables on a terminal or in a notebook.

A result is a dataclass. Its fields become plain values by their names; arrays and tuples become lists, and
numbers that are not finite, which JSON does not know, become None. Reading turns None back into NaN where a
number is to be. What is shown of a result is the tables that it returns from `tables`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_origin

import numpy as np

from fultr.errors import InputError, visible

if TYPE_CHECKING:
    import polars as pl
    from cattrs import Converter
    from rich.console import Group

Made = TypeVar("Made")

Tables = dict[str, list[dict[str, Any]]]
"""Tables by their titles: rows, each with its values by the names of columns."""

PAGE = """\
<div class="fultr"><p><code>{{ line }}</code></p>
{%- for title, rows in tables.items() %}
<table><caption>{{ title }}</caption>
<thead><tr>{% for name in rows[0] %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in rows %}
<tr>{% for value in row.values() %}<td>{{ shown(value) }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table>
{%- endfor %}
</div>
"""
"""What a notebook shows: a line, and tables below it."""

MOST_ROWS = 60
"""Rows of a table that a notebook or a terminal shows; frames have all of them."""


class PlainValues:
    """A dataclass that becomes plain values, and can be made of them again.

    `derived` are properties that are written beside the fields, for whoever reads the values elsewhere.
    """

    derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; what is not a finite number becomes None."""
        content: dict[str, Any] = to_plain(self)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make the same from what `to_dict` gave."""
        return from_plain(content, cls)


class Displayed:
    """What is shown as tables: in a notebook, and by rich on a terminal."""

    @abstractmethod
    def tables(self) -> Tables:
        """Return what there is to show; the first table is the most important one."""

    def _repr_html_(self) -> str:
        return html_of(repr(self), self.tables())

    def __rich__(self) -> Group:
        return rich_tables(repr(self), self.tables())


class Result(PlainValues, Displayed):
    """A result: plain values for JSON, frames, and tables in a notebook or on a terminal."""

    def to_frame(self, table: str | None = None) -> pl.DataFrame:
        """Return a table as a polars frame; by default the first of `tables`."""
        return frame_of(self.tables(), table)


def frame_of(tables: Tables, title: str | None = None) -> pl.DataFrame:
    """Return one of several tables as a polars frame; by default the first."""
    import polars as pl

    if title is not None and title not in tables:
        problem = f"there is no such table; there are: {', '.join(tables) or 'none'}"
        raise InputError(problem, column="table", value=title)
    rows = tables.get(next(iter(tables), "") if title is None else title, [])
    return pl.DataFrame(to_plain(rows), infer_schema_length=None)


def summary_tables(summary: Mapping[str, Any]) -> Tables:
    """Return what `describe` of some data says as tables: single values, then those of many rows."""
    facts = [
        {"": name, "value": value} for name, value in summary.items() if not isinstance(value, (dict, list))
    ]
    tables: Tables = {"summary": facts}
    for name, value in summary.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tables[name] = value
        elif isinstance(value, dict) and value and all(isinstance(one, dict) for one in value.values()):
            tables[name] = [{name: key, **one} for key, one in value.items()]
        elif isinstance(value, (dict, list)) and value:
            facts.append({"": name, "value": str(value)})
    return tables


def html_of(line: str, tables: Tables) -> str:
    """Return a line and tables as HTML; text from data is escaped."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(PAGE)
    cut = {title: rows[:MOST_ROWS] for title, rows in tables.items() if rows}
    return template.render(line=line, tables=cut, shown=_cell)


def rich_tables(line: str, tables: Tables) -> Group:
    """Return a line and tables as rich shows them; text from data is no markup."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown: list[Any] = [Text(visible(line))]
    for title, rows in tables.items():
        if rows:
            made = Table(title=Text(title), title_justify="left")
            for name in rows[0]:
                made.add_column(Text(visible(name)))
            for row in rows[:MOST_ROWS]:
                made.add_row(*(Text(_cell(value)) for value in row.values()))
            shown.append(made)
    return Group(*shown)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else visible(str(value))


def to_plain(value: Any) -> Any:
    """Return a result, or lists and mappings of results, as plain values."""
    return _converter().unstructure(value)


def from_plain(content: Any, kind: type[Made]) -> Made:
    """Make a value of a type of plain values.

    Raises KeyError, TypeError or ValueError if they are those of something else.
    """
    return _converter().structure(content, kind)


@cache
def _converter() -> Converter:
    from cattrs import Converter
    from cattrs.gen import make_dict_unstructure_fn

    converter = Converter(detailed_validation=False, unstruct_collection_overrides={tuple: list})

    def unstructured(cls: type[PlainValues]) -> Any:
        of_fields = make_dict_unstructure_fn(cls, converter)

        def with_derived(value: PlainValues) -> dict[str, Any]:
            derived = {name: converter.unstructure(getattr(value, name)) for name in cls.derived}
            return {**of_fields(value), **derived}

        return with_derived

    def is_result(kind: Any) -> bool:
        return isinstance(kind, type) and issubclass(kind, PlainValues)

    def has_own_form(kind: Any) -> bool:
        return isinstance(kind, type) and hasattr(kind, "to_dict") and not is_result(kind)

    def is_array(kind: Any) -> bool:
        return kind is np.ndarray or get_origin(kind) is np.ndarray

    def is_number_of_numpy(kind: Any) -> bool:
        return isinstance(kind, type) and issubclass(kind, np.generic)

    converter.register_unstructure_hook(float, _finite)
    converter.register_structure_hook(float, lambda number, _: math.nan if number is None else float(number))
    for kind in (bool, int, str):
        converter.register_structure_hook(kind, _same_type)
    converter.register_unstructure_hook_func(
        is_number_of_numpy, lambda one: converter.unstructure(one.item())
    )
    converter.register_unstructure_hook_func(is_array, lambda array: converter.unstructure(array.tolist()))
    converter.register_structure_hook_func(is_array, lambda rows, _: np.array(rows, dtype=np.float64))
    converter.register_unstructure_hook_factory(is_result, unstructured)
    converter.register_unstructure_hook_func(has_own_form, lambda value: value.to_dict())
    converter.register_structure_hook_func(has_own_form, lambda content, kind: kind.from_dict(content))
    return converter


def _same_type(value: Any, kind: type) -> Any:
    """Return a value that is of a type already; another one was not written by us."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
