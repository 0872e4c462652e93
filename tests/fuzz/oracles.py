"""Slow readers of text, in plain Python and by the documented rules: what they refuse is no such file.

They share nothing with the package. Each returns what must come out of a file as a sorted list, or raises
`Refused`. The package may refuse more, and never less.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from tests.fuzz.generators import Files, Row

csv.field_size_limit(sys.maxsize)

DEEPEST = 1_000_000
LARGEST_FLOAT32 = 3.4028235677973366e38
"""Half a step above the largest float32: what is smaller in size rounds to a float32."""

Entries = list[tuple[Any, ...]]


class Refused(Exception):  # noqa: N818 - no error, but an answer
    """The file breaks a rule."""


def need(holds: object) -> None:
    if not holds:
        raise Refused


def text_of(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused from None


# --- values ---


def number(value: object) -> float | None:
    """Read a number, or digits as a person writes them; None if it is missing."""
    if value is None:
        return None
    if isinstance(value, bool | int | float):
        try:
            made = float(value)
        except OverflowError:
            raise Refused from None
        return None if math.isnan(made) else made
    need(isinstance(value, str))
    words = str(value).strip()
    need(words and all(sign in "0123456789+-.eE" for sign in words))
    try:
        return float(words)
    except ValueError:
        raise Refused from None


def flag(value: object) -> float | None:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return float(value.strip().lower() == "true")
    return number(value)


def integer(value: object, least: int, most: int) -> int:
    made = number(value)
    need(made is not None and math.isfinite(made) and made == math.floor(made) and least <= made <= most)
    return int(made or 0)


def feature(value: object) -> float:
    made = flag(value)
    need(made is not None and math.isfinite(made) and abs(made) < LARGEST_FLOAT32)
    return float(np.float32(made))


def identity(value: object) -> str:
    """Read an id: text, or an integer of 64 bits."""
    need(value is not None and not isinstance(value, bool | float))
    need(isinstance(value, str) or (isinstance(value, int) and -(2**63) <= value < 2**63))
    return str(value)


# --- rows of a log ---


def log_entries(rows: Iterable[Row]) -> Entries:
    """Return the candidates and planted items of a long table, in any order of rows."""
    entries: Entries = []
    of_impression: dict[str, list[Row]] = defaultdict(list)
    said: dict[tuple[str, str], tuple[Any, ...]] = {}
    clicked = False
    for row in rows:
        one = _entry(row)
        of_impression[one["impression"]].append(one)
        if not one["planted"]:
            about = (one["group"], one["features"])
            need(said.setdefault((one["query"], one["doc"]), about) == about)
            clicked = clicked or one["click"]
        name = (one["impression"], one["query"]) if not one["planted"] else (one["impression"], "planted")
        doc = "" if one["planted"] else one["doc"]
        about = ("", ()) if one["planted"] else (one["group"], one["features"])
        entries.append((*name, doc, one["position"], one["click"], one["propensity"], *about))
    need(clicked)
    for impression in of_impression.values():
        need(len({one["query"] for one in impression}) == 1)
        places = [one["position"] for one in impression if one["position"]]
        documents = [one["doc"] for one in impression if not one["planted"]]
        need(len(set(places)) == len(places) and len(set(documents)) == len(documents) and documents)
    return sorted(entries)


def _entry(row: Row) -> dict[str, Any]:
    for name in ("impression_id", "query_id", "doc_id", "position", "click"):
        need(name in row)
    shown = number(row["position"]) is not None
    click = flag(row["click"])
    need(click in (0, 1) or (click is None and not shown))
    need(shown or not click)
    planted = flag(row.get("planted")) or 0.0
    need(planted in (0, 1) and (shown or not planted))
    propensity = number(row["propensity"]) if "propensity" in row and shown else None
    need("propensity" not in row or not shown or (propensity is not None and 0 < propensity <= 1))
    group = row.get("group")
    need(group is None or isinstance(group, str | int))
    return {
        "impression": identity(row["impression_id"]),
        "query": identity(row["query_id"]),
        "doc": identity(row["doc_id"]),
        "position": integer(row["position"], 1, DEEPEST) if shown else 0,
        "click": bool(click),
        "planted": bool(planted),
        "propensity": -1.0 if propensity is None else propensity,
        "group": "" if group is None else _label(group),
        "features": tuple(feature(row[name]) for name in sorted(row) if name.startswith("feature_")),
    }


def _label(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def csv_rows(content: bytes, separator: str = ",") -> list[Row]:
    """Return the rows of a CSV file; an empty field is a missing value."""
    text = text_of(content)
    if text.startswith("# fultr "):
        text = text.partition("\n")[2]
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    except csv.Error:
        raise Refused from None
    need(rows)
    header = rows[0]
    need(len(set(header)) == len(header) and all(len(row) == len(header) for row in rows))
    return [{name: cell or None for name, cell in zip(header, row, strict=True)} for row in rows[1:]]


def csv_log(files: Files) -> Entries:
    return log_entries(csv_rows(files["log.csv"]))


# --- JSON ---


def strict_json(content: bytes) -> Any:
    """Parse JSON with NaN, as many write it; a name that stands twice is refused."""

    def whole(text: str) -> float:
        return int(text) if len(text) < 400 else math.inf

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs))
        return dict(pairs)

    try:
        return json.loads(content.decode(), parse_int=whole, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise Refused from None


def json_lines(content: bytes) -> list[Row]:
    """Return the object of each line, all of them with the same names."""
    rows = [strict_json(line) for line in content.split(b"\n") if line.strip()]
    need(rows and all(isinstance(row, dict) for row in rows))
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def ndjson_log(files: Files) -> Entries:
    return log_entries(json_lines(files["log.ndjson"]))


def nested_log(files: Files) -> Entries:
    long: list[Row] = []
    for row in json_lines(files["log.ndjson"]):
        columns = {"doc_id": "doc_ids", "click": "clicks", "position": "places", "group": "owner"}
        lists = {name: row.get(column) for name, column in columns.items()}
        need(all(isinstance(values, list) for values in lists.values()) and "session" in row)
        need(len({len(values) for values in lists.values() if values is not None}) == 1 and lists["doc_id"])
        for values in zip(*(given for given in lists.values() if given is not None), strict=True):
            about = {"impression_id": row["session"], "query_id": row.get("query_id")}
            long.append(about | dict(zip(lists, values, strict=True)))
    sessions = [row["session"] for row in json_lines(files["log.ndjson"])]
    need(len(set(map(str, sessions))) == len(sessions))
    return log_entries(long)


def ubi_log(files: Files) -> Entries:
    """Read searches and clicks, all hits of a search being shown in their order."""
    searches: dict[str, tuple[str, list[str]]] = {}
    clicks: list[tuple[str, str]] = []
    for line in files["ubi.ndjson"].split(b"\n"):
        if not line.strip():
            continue
        record = _last_json(line)
        need(isinstance(record, dict))
        if len(record) == 1 and set(record) <= {"index", "create"}:
            continue
        record = record["_source"] if isinstance(record.get("_source"), dict) else record
        action = record.get("action_name")
        if action is None:
            query, hits = record.get("user_query"), record.get("query_response_hit_ids")
            need(isinstance(query, str) and (hits is None or isinstance(hits, list)))
            made = str(query), [_own_id(hit) for hit in hits or []]
            need(len(set(made[1])) == len(made[1]))
            need(searches.setdefault(_own_id(record.get("query_id")), made) == made)
        elif isinstance(action, str) and action in ("click", "click_through"):
            document = _at(record, "event_attributes.object.object_id")
            need(record.get("query_id") is not None and document is not None)
            clicks.append((str(record["query_id"]), str(document)))
    for search, document in clicks:
        need(search in searches and document in searches[search][1])
    need(clicks)
    return sorted(
        (search, query, hit, place, (search, hit) in clicks, -1.0, "", ())
        for search, (query, hits) in searches.items()
        for place, hit in enumerate(hits, start=1)
    )


def _last_json(line: bytes) -> Any:
    """Parse JSON as everyone does, the last of two equal names being taken."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise Refused from None


def _own_id(value: object) -> str:
    need(isinstance(value, str) or type(value) is int)
    return str(value)


def _at(record: Any, path: str) -> Any:
    if path in record:
        return record[path]
    for name in path.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record


# --- counts ---


def aggregated_log(files: Files) -> Entries:
    """Return the counts of each query, document and position, and how often each query was searched for."""
    cells: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    said: dict[tuple[str, str], tuple[Any, ...]] = {}
    given: dict[str, int] = {}
    rows = csv_rows(files["counts.csv"])
    for row in rows:
        query, document = identity(row.get("query_id")), identity(row.get("doc_id"))
        shown, clicked = (integer(row.get(name), 0, 2**53 - 1) for name in ("impressions", "clicks"))
        need(clicked <= shown)
        place = number(row.get("position"))
        need("position" in row)
        if place is not None:
            place = integer(row["position"], 1, DEEPEST)
        need(place is not None or not shown)
        about = tuple(feature(row[name]) for name in sorted(row) if name.startswith("feature_"))
        need(said.setdefault((query, document), (row.get("group"), about)) == (row.get("group"), about))
        if "query_impressions" in row:
            total = integer(row["query_impressions"], 0, 2**53 - 1)
            need(given.setdefault(query, total) == total)
        if shown:
            cell = cells[query, document, int(place or 0)]
            cell[0] += shown
            cell[1] += clicked
    need(sum(clicked for _, clicked in cells.values()) > 0)
    by_place: dict[tuple[str, int], int] = defaultdict(int)
    by_document: dict[tuple[str, str], int] = defaultdict(int)
    for (query, document, at), (shown, _) in cells.items():
        by_place[query, at] += shown
        by_document[query, document] += shown
    for (query, _), shown in [*by_place.items(), *by_document.items()]:
        total = given[query] if query in given else by_place.get((query, 1), 0)
        need(shown <= total)
    need(sum(shown for shown, _ in cells.values()) < 2**53)
    return sorted((*cell, *counts) for cell, counts in cells.items())


# --- LETOR and LightGBM ---

BLANKS = "".join(map(chr, range(33)))


def letor_line(line: str, *, least: int, needs_query: bool) -> tuple[float, str, dict[int, float]] | None:
    """Return label, query and features of a line, None if it has no data."""
    for sign in BLANKS:
        line = line.replace(sign, " ")
    words = line.partition("#")[0].split(" ")
    words = [word for word in words if word]
    if not words:
        return None
    label = _plain_number(words.pop(0))
    need(label >= 0)
    query = ""
    if words and words[0].startswith("qid:") and words[0] != "qid:":
        query = words.pop(0)[4:]
    need(query or not needs_query)
    features: dict[int, float] = {}
    for word in words:
        index, colon, value = word.partition(":")
        need(colon and index and all(sign in "0123456789" for sign in index) and len(index.lstrip("0")) < 9)
        need(int(index) not in features and least <= int(index) <= DEEPEST)
        features[int(index)] = _plain_number(value)
    return label, query, features


def _plain_number(word: str) -> float:
    need(word and word == word.strip())
    made = number(word)
    need(made is not None and abs(made) < LARGEST_FLOAT32)
    return float(np.float32(made))


def letor_rows(files: Files) -> Entries:
    """Return query, label and features of all rows; queries are numbers if all of them are integers."""
    content = files["data.txt"]
    need(b"\0" not in content)
    text = content.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    rows = [letor_line(line, least=1, needs_query=True) for line in text.split("\n")]
    kept = [row for row in rows if row is not None]
    need(kept)
    width = max(max(features, default=0) for _, _, features in kept)
    return sorted(
        (query.lstrip("0+"), label, tuple(features.get(index, 0.0) for index in range(1, width + 1)))
        for label, query, features in kept
    )


def lightgbm_log(files: Files) -> Entries:
    """Read a file for LightGBM and the files beside it."""
    rows = _lightgbm_rows(files["train.txt"])
    beside = {name: _lines(files, name) for name in ("query", "position", "query_id", "doc_id", "item_group")}
    size = len(rows)
    if beside["query"] is None:
        need(all(query for _, query in rows))
        changes = [0, *(k for k, (a, b) in enumerate(pairwise(rows), start=1) if a[1] != b[1]), size]
        lengths = [stop - start for start, stop in pairwise(changes)]
    else:
        lengths = [integer(line, 1, 10**15) for line in beside["query"]]
    need(sum(lengths) == size)
    lists = [k for k, length in enumerate(lengths) for _ in range(length)]
    places = beside["position"]
    need(places is not None and len(places) == size)
    digits = [line[len(line.rstrip("0123456789")) :] for line in places or []]
    need(all(digits))
    first = 0 if any(int(word) == 0 for word in digits) else 1
    long: list[Row] = []
    for k, (click, query) in enumerate(rows):
        queries, documents, groups = (beside[name] for name in ("query_id", "doc_id", "item_group"))
        for lines, length in ((queries, len(lengths)), (documents, size), (groups, size)):
            need(lines is None or len(lines) == length)
        row: Row = {"impression_id": lists[k], "query_id": query or lists[k], "doc_id": k}
        row["query_id"] = row["query_id"] if queries is None else queries[lists[k]] or None
        row["doc_id"] = k if documents is None else documents[k] or None
        row["group"] = None if groups is None else groups[k] or None
        long.append({**row, "position": int(digits[k]) + 1 - first, "click": click})
    entries = log_entries(long)
    given = [name for name in ("query_id", "doc_id") if beside[name] is not None]
    return sorted(
        (entry[3], entry[4], entry[6], *(entry[1 + ("query_id", "doc_id").index(name)] for name in given))
        for entry in entries
    )


def _lines(files: Files, name: str) -> list[str] | None:
    content = files.get(f"train.txt.{name}")
    if content is None:
        return None
    try:
        text = io.TextIOWrapper(io.BytesIO(content), "utf-8").read()  # all line ends become one
    except UnicodeDecodeError:
        raise Refused from None
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def _lightgbm_rows(content: bytes) -> list[tuple[object, str]]:
    """Return the label of each row, and its query if the data says it."""
    first = next((line for line in content.split(b"\n") if line.strip()), b"")
    has_pairs = any(b":" in word[1:] for word in first.split())
    if has_pairs or not (b"," in first or b"\t" in first):
        need(b"\0" not in content)
        text = content.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
        parsed = [letor_line(line, least=0, needs_query=False) for line in text.split("\n")]
        rows = [(label, query) for label, query, _ in filter(None, parsed)]
        need(rows and len({bool(query) for _, query in rows}) == 1)
        return list(rows)
    try:
        table = list(
            csv.reader(io.StringIO(text_of(content), newline=""), delimiter="\t" if b"\t" in first else ",")
        )
    except csv.Error:
        raise Refused from None
    cells = [row for row in table if row]
    if not all(_is_number(word) for word in cells[0]):
        header = cells.pop(0)
        need(len(set(header)) == len(header))
        at = header.index("label") if "label" in header else 0
    else:
        header, at = cells[0], 0
    need(cells and all(len(row) == len(header) for row in cells))
    return [(row[at] or None, "") for row in cells]


def _is_number(word: str) -> bool:
    try:
        return number(word or None) is not None or not word
    except Refused:
        return word.strip().lower().lstrip("+-") in ("nan", "inf", "infinity")


# --- labelled lists ---


def labelled_rows(files: Files) -> Entries:
    """Return query, document, relevance, group and features of labelled rows."""
    rows = csv_rows(files["lists.csv"])
    need(rows)
    label = "relevance" if "relevance" in rows[0] else "label"
    entries: Entries = []
    for row in rows:
        relevance = number(row.get(label))
        need(relevance is not None and 0 <= relevance < LARGEST_FLOAT32)
        others = [
            name for name in row if name not in ("query_id", "doc_id", "comment", "list", "group", label)
        ]
        document = identity(row["doc_id"]) if "doc_id" in row else ""
        values = tuple(feature(row[name]) for name in others)
        label_of_group = row.get("group") or ""
        entries.append(
            (identity(row.get("query_id")), document, float(np.float32(relevance)), label_of_group, values)
        )
    need(
        "doc_id" not in rows[0] or "list" in rows[0] or len({entry[:2] for entry in entries}) == len(entries)
    )
    return sorted(entries)


# --- files of JSON ---


def json_object(content: bytes) -> Any:
    """Return the content of a file with one JSON object of finite numbers."""

    def refuse(_: str) -> NoReturn:
        raise Refused

    def finite(text: str) -> float:
        need(math.isfinite(float(text)))
        return float(text)

    try:
        made = json.loads(content.decode(), parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError):
        raise Refused from None
    need(isinstance(made, dict))
    return made


def position_bias(files: Files) -> Entries:
    """Return the values of a position bias, relative to the first."""
    content = json_object(files["bias.json"])
    curves = {"": content}
    if "curves" in content:
        need(
            isinstance(content["curves"], dict)
            and content["curves"]
            and isinstance(content.get("column"), str)
        )
        curves = content["curves"]
    entries: Entries = []
    for name, curve in curves.items():
        need(isinstance(curve, dict) and isinstance(curve.get("values"), list) and curve["values"])
        for value in curve["values"]:
            need(type(value) in (int, float) and math.isfinite(value) and value >= 0)
        need(curve["values"][0] > 0)
        entries.append((name, *(float(value) for value in curve["values"])))
    return sorted(entries)
