"""Requests of the service: what they hold, and what is wrong with one that cannot be used, by name."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fultr.errors import InputError, visible

Features = NDArray[np.float32]

LONGEST_ID = 512
"""Characters of an id, a session key or the name of a group."""

MOST_CANDIDATES = 10_000

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_ID)]
Position = Annotated[int, msgspec.Meta(ge=1, le=MOST_CANDIDATES)]


class Candidate(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An item that may be shown."""

    id: Text
    features: list[float | bool | str | None] | dict[str, float | bool | str | None] | None = None
    """In the order of the policy, or by name; left out where the service has a table of items. Categories are
    text, and null is a missing value where the policy takes one."""
    group: Text | None = None


class RankRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /rank` takes."""

    query_id: Text
    candidates: Annotated[list[Candidate], msgspec.Meta(min_length=1, max_length=MOST_CANDIDATES)]
    top_k: Position | None = None
    """How many items to show; all of them by default."""
    offset: Annotated[int, msgspec.Meta(ge=0, le=MOST_CANDIDATES)] = 0
    """How many items the pages before have shown."""
    session: Text | None = None
    """The same session, query and day give the same ranking; without it each ranking is drawn afresh."""


class RankAnswer(msgspec.Struct):
    """What `POST /rank` answers."""

    ranking_id: str
    ids: list[str]
    policy: str
    offset: int
    recorded: bool
    """Whether the impression is in the store of events, with the durability of the service."""


class ClickRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /clicks` takes: items of a ranking by id, or by position from 1."""

    ranking_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{8}-[0-9a-f]{20}$")]
    ids: Annotated[list[Text], msgspec.Meta(max_length=MOST_CANDIDATES)] = []
    positions: Annotated[list[Position], msgspec.Meta(max_length=MOST_CANDIDATES)] = []
    click_id: Annotated[str, msgspec.Meta(max_length=LONGEST_ID)] = ""
    """Clicks with the same id on the same item are one click."""


class ClickAnswer(msgspec.Struct):
    """What `POST /clicks` answers."""

    ranking_id: str
    new: int
    """How many clicks were not recorded before."""


class Problem(msgspec.Struct):
    """What is answered to a request that cannot be used."""

    error: str


_rank_requests = msgspec.json.Decoder(RankRequest)
_click_requests = msgspec.json.Decoder(ClickRequest)


def rank_request(body: bytes) -> RankRequest:
    """Read the body of `POST /rank`; an error names what is wrong with it."""
    try:
        request = _rank_requests.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _explained(body, error) from None
    ids = [one.id for one in request.candidates]
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        again = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        raise InputError("a candidate comes twice", column="id", value=again)
    _check_text((request.query_id, *ids, *(one.group or "" for one in request.candidates)))
    return request


def click_request(body: bytes) -> ClickRequest:
    """Read the body of `POST /clicks`."""
    try:
        request = _click_requests.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _explained(body, error) from None
    if not request.ids and not request.positions:
        raise InputError("must have ids or positions of clicked items", column="ids")
    _check_text((*request.ids, request.click_id))
    return request


def _check_text(texts: Sequence[str]) -> None:
    """Refuse text that a database cannot hold."""
    joined = "".join(texts)
    if "\0" in joined:
        raise InputError("text must not hold the character 0")
    if not joined.isascii():
        try:
            joined.encode()
        except UnicodeEncodeError:
            raise InputError("text must be Unicode; half of a character is none") from None


OTHER = "(other)"
"""What stands for a category that no policy knows."""

LARGEST = float(np.finfo(np.float32).max)


def with_other(categories: Sequence[str]) -> tuple[str, ...]:
    """Return categories with `OTHER` as the last: a policy of recorded events may have it among its own."""
    return *(one for one in categories if one != OTHER), OTHER


class FeatureReader:
    """Brings features of candidates, by name or in order, into rows of numbers.

    Parameters
    ----------
    names
        The features, in order.
    category_names
        The categories of each feature that holds any; another one counts as `OTHER`.
    allows_missing
        Whether a feature may be null.
    """

    def __init__(
        self,
        names: Sequence[str],
        category_names: Mapping[str, Sequence[str]] | None = None,
        *,
        allows_missing: bool = False,
    ) -> None:
        self.names, self.allows_missing = tuple(names), allows_missing
        given = category_names or {}
        self.category_names = {name: with_other(given[name]) for name in self.names if name in given}
        self._codes = {
            name: {text: code for code, text in enumerate(texts)}
            for name, texts in self.category_names.items()
        }
        self._pack = struct.Struct(f"<{len(self.names)}f").pack
        get = itemgetter(*self.names) if len(self.names) > 1 else None
        self._values = get or (lambda given: (given[self.names[0]],))

    def rows(self, candidates: Sequence[Candidate]) -> Features:
        """Return the features, a row for each candidate; an error names the candidate and the feature."""
        if self._codes or self.allows_missing:
            rows = [[self._number(*pair, one) for pair in self._pairs(one)] for one in candidates]
            return np.array(rows, "<f4")
        try:
            packed = self._packed(candidates)
        except (KeyError, struct.error, OverflowError, TypeError):
            packed = None
        if packed is None:  # find out what is wrong, and with which of them
            rows = [[self._number(*pair, one) for pair in self._pairs(one)] for one in candidates]
            return np.array(rows, "<f4")
        return np.frombuffer(packed, "<f4").reshape(len(candidates), len(self.names))

    def _packed(self, candidates: Sequence[Any]) -> bytes | None:
        """Return the rows of numbers as bytes; None, or an error, if they are not what they should be."""
        pack, values = self._pack, self._values
        if type(candidates[0].features) is list:
            return b"".join([pack(*one.features) for one in candidates])
        if any(len(one.features) != len(self.names) for one in candidates):
            return None
        return b"".join([pack(*values(one.features)) for one in candidates])

    def _pairs(self, candidate: Candidate) -> list[tuple[str, Any]]:
        """Return each feature of a candidate with its name; refuse those that are missing or too many."""
        given, of = candidate.features, f"of candidate '{candidate.id}'"
        if given is None:
            raise InputError(f"the features {of} are missing, and the service has no table of items")
        if isinstance(given, list):
            if len(given) != len(self.names):
                last = self.names[-1] if len(given) < len(self.names) else None
                problem = f"the features {of} must be {len(self.names)} numbers"
                raise InputError(problem, column=last, value=len(given))
            return list(zip(self.names, given, strict=True))
        missing = next((name for name in self.names if name not in given), None)
        if missing is not None:
            raise InputError(f"the feature {of} is missing", column=missing)
        if len(given) > len(self.names):
            extra = next(name for name in given if name not in self.names)
            raise InputError(f"the feature {of} is none of the policy", column=extra)
        return [(name, given[name]) for name in self.names]

    def _number(self, name: str, value: Any, candidate: Candidate) -> float:
        """Return a feature as a number: itself, the code of its category, or NaN if it is missing."""
        if value is None and self.allows_missing:
            return math.nan
        codes = self._codes.get(name)
        if codes is not None and value is not None:
            return codes.get(_category(value), len(codes) - 1)
        if isinstance(value, (float, int)) and abs(value) <= LARGEST:
            return value
        problem = f"the feature of candidate '{candidate.id}' must be a number of 32 bits"
        raise InputError(problem, column=name, value="null" if value is None else value)


def _category(value: Any) -> str:
    """Return the name of a category, as a log would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _explained(body: bytes, error: Exception) -> InputError:
    """Return an error that names the candidate and the feature, where the decoder names neither."""
    try:
        content: Any = json.loads(body)
        candidates = content["candidates"]
        for index, one in enumerate(candidates):
            if isinstance(one, dict):
                problem = _wrong_feature(one, index)
                if problem is not None:
                    return problem
    except (ValueError, KeyError, TypeError, RecursionError, UnicodeError):
        pass
    return InputError(visible(str(error)))


def _wrong_feature(one: dict[str, Any], index: int) -> InputError | None:
    features = one.get("features")
    pairs: list[tuple[str, Any]] = []
    if isinstance(features, dict):
        pairs = list(features.items())
    elif isinstance(features, list):
        pairs = [(f"features[{number}]", value) for number, value in enumerate(features)]
    for name, value in pairs:
        is_number = isinstance(value, (int, float)) and abs(value) <= sys.float_info.max
        if not (is_number or value is None or isinstance(value, str)):
            of = f"of candidate {index + 1}, '{one.get('id')}'"
            return InputError(f"the feature {of} must be a number", column=str(name), value=value)
    return None
