"""Requests of the service: what they hold, and what is wrong with one that cannot be used, by name."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
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
    features: list[float] | dict[str, float] | None = None
    """In the order of the policy, or by name; left out where the service has a table of items."""
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


class FeatureReader:
    """Brings features of candidates, by name or in order, into the order of a policy."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.number = len(self.names)
        self._pack = struct.Struct(f"<{self.number}f").pack
        get = itemgetter(*self.names) if self.number > 1 else None
        self._values = get or (lambda given: (given[self.names[0]],))

    def rows(self, candidates: Sequence[Candidate]) -> Features:
        """Return the features, a row for each candidate; an error names the candidate and the feature."""
        pack, values, number = self._pack, self._values, self.number
        try:
            packed = b"".join(
                [
                    pack(*given) if type(given := one.features) is list else pack(*values(given))
                    for one in candidates
                    if given_length(one.features) == number or _mismatch(one, self.names)
                ]
            )
        except (KeyError, struct.error, OverflowError, TypeError):
            for one in candidates:
                _check_features(one, self.names)
            raise
        return np.frombuffer(packed, "<f4").reshape(len(candidates), number)


def given_length(features: list[float] | dict[str, float] | None) -> int:
    """Return how many features were given."""
    return -1 if features is None else len(features)


def _mismatch(candidate: Candidate, names: tuple[str, ...]) -> bool:
    _check_features(candidate, names)
    raise AssertionError("a number of features that does not fit was accepted")


def _check_features(candidate: Candidate, names: tuple[str, ...]) -> None:
    """Refuse features of a candidate that are not those of the policy."""
    given, of = candidate.features, f"of candidate '{candidate.id}'"
    if given is None:
        raise InputError(f"the features {of} are missing, and the service has no table of items")
    if isinstance(given, dict):
        missing = next((name for name in names if name not in given), None)
        if missing is not None:
            raise InputError(f"the feature {of} is missing", column=missing)
        extra = next((name for name in given if name not in names), None)
        if extra is not None:
            raise InputError(f"the feature {of} is none of the policy", column=extra)
        pairs = [(name, given[name]) for name in names]
    else:
        if len(given) != len(names):
            last = names[-1] if len(given) < len(names) else None
            problem = f"the features {of} must be {len(names)} numbers"
            raise InputError(problem, column=last, value=len(given))
        pairs = list(zip(names, given, strict=True))
    for name, value in pairs:
        if not abs(value) <= float(np.finfo(np.float32).max):
            raise InputError(f"the feature {of} must be a number of 32 bits", column=name, value=value)


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
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            of = f"of candidate {index + 1}, '{one.get('id')}'"
            return InputError(f"the feature {of} must be a number", column=str(name), value=value)
    return None
