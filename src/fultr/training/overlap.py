"""What a log shares with the training of a policy: the same impressions, or queries that come again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data import Counts, CountsOrLabels, RankingDataset, Source
from fultr.data.grouping import mixed
from fultr.data.ids import IdCodes, codes_of, distinct
from fultr.data.merging import id_codes_of
from fultr.errors import InputError

TELLING_CLICKS = 5
"""With fewer clicks, two weeks of a list may be the same by chance."""

LISTS_KEPT = 1000
"""Digests of lists that a policy keeps of its training and of its validation: those that are lowest."""

IMPRESSIONS_KEPT = 1000
"""Digests of single impressions that a policy keeps of its training and validation: those that are lowest."""

DIGEST_LENGTH, IMPRESSION_LENGTH = 16, 17
"""Characters of the digests of a list and of an impression, which tell them from those of files."""

SAME_BY_CHANCE = 0.005
"""Up to this share of the impressions of two logs may be equal, at equal times, without being the same."""


class Overlap(NamedTuple):
    """What lists share with the training and validation of a policy.

    Parameters
    ----------
    recurring
        For each list, whether its query was seen in training; None where that cannot be told without ids.
    same_impressions
        Whether they hold impressions of the training; None where the policy does not keep what tells.
    files
        The names of the counted files that were trained on.
    share
        About what share of the impressions training saw, where times tell impressions apart.
    """

    recurring: NDArray[np.bool_] | None
    same_impressions: bool | None
    files: tuple[str, ...] = ()
    share: float | None = None


def overlap_with_training(
    policy: object, source: Source, lists: RankingDataset | None = None
) -> Overlap | None:
    """Return what a log or labelled lists share with the training of a policy; None if it was not trained.

    `lists` are those that `recurring` is about, if they are not those of the source.
    """
    queries = getattr(policy, "training_queries_", None)
    if queries is None:
        return None
    of_lists = _digests_of_lists(source.data if lists is None else lists)
    recurring = np.isin(of_lists, queries) if len(queries) and of_lists.size else None
    evidence = getattr(policy, "training_evidence_", None)
    if evidence is None:
        return Overlap(recurring, None)
    content = source.compact()
    if content_digest(content) in evidence:
        return Overlap(recurring, True)
    if not isinstance(content, Counts):
        return Overlap(recurring, False)
    files = tuple(file.name for file in content.files if file.sha256 in evidence)
    share = _share_known(impression_digests(content), evidence)
    if share > SAME_BY_CHANCE:
        return Overlap(recurring, True, files, share)
    # other queries of the same file are other impressions
    same = bool(files) and recurring is not None and bool(recurring.any())
    return Overlap(recurring, same or _mostly_known(list_digests(content), evidence), files)


def recurring_queries(overlap: Overlap, data: RankingDataset) -> int | None:
    """Return how many queries were seen in training; None where it cannot be told."""
    return None if overlap.recurring is None else int(np.unique(data.query_codes[overlap.recurring]).size)


def notes_on_overlap(name: str, overlap: Overlap, data: RankingDataset) -> Iterator[str]:
    """Yield what lists share with the training of a policy of some name, and what that means."""
    if overlap.same_impressions is None:
        yield (
            f"{name} was saved without digests of what it was trained on, so that it cannot be checked"
            " whether these are the same impressions; train it again to have them"
        )
    elif overlap.same_impressions:
        yield f"{name} was trained or validated on this very data, where it looks better than elsewhere"
    recurring = recurring_queries(overlap, data)
    if recurring is None:
        yield f"without ids of queries it cannot be told which of them {name} was trained on"
    elif recurring and not overlap.same_impressions:
        yield (
            f"{recurring:,} of {np.unique(data.query_codes).size:,} queries were in the training of {name}:"
            " if these are other clicks than it was trained on, they show whether its result holds on queries"
            " that it knows, not what happens on queries that it never saw"
        )


def training_evidence(source: Source, valid: Source | None) -> tuple[str, ...]:
    """Return digests that identify the impressions of training and validation.

    They are those of the files that were counted and that of the counts themselves. A saved policy keeps
    them. Validation by what is trained on is refused: it would choose the policy that remembers most.
    """
    digests: list[str] = []
    impressions: list[str] = []
    for source_or_valid in (source, valid):
        if source_or_valid is None:
            continue
        content = source_or_valid.compact()
        digest = content_digest(content)
        if digest in digests:
            problem = (
                "is the same as what is trained on, so that it chooses nothing; give clicks on other queries,"
                " or leave it out for a split by query"
            )
            raise InputError(problem, column="valid")
        digests.append(digest)
        if isinstance(content, Counts):
            digests += [file.sha256 for file in content.files]
            digests += list_digests(content)[:LISTS_KEPT]
            impressions += impression_digests(content)
    return tuple(sorted({*digests, *sorted(set(impressions))[:IMPRESSIONS_KEPT]}))


def impression_digests(counts: Counts) -> list[str]:
    """Return digests of some single impressions, in ascending order; none where times do not tell them apart.

    They are those with the lowest hashes, so that two logs that share impressions share digests.
    """
    facts = counts.facts
    if facts is None or not facts.times_tell:
        return []
    return [f"i{key:016x}" for key in facts.sample["key"].tolist()]


def _share_known(digests: list[str], evidence: tuple[str, ...]) -> float:
    """Return about what share of the impressions of a log is among those of the training."""
    trained = sorted(digest for digest in evidence if len(digest) == IMPRESSION_LENGTH)
    if not trained or not digests:
        return 0.0
    comparable = (
        digests
        if len(trained) < IMPRESSIONS_KEPT
        else [digest for digest in digests if digest <= trained[-1]]
    )
    return len({*comparable} & {*trained}) / len(comparable) if comparable else 0.0


def list_digests(counts: Counts) -> list[str]:
    """Return a digest of what was shown and clicked in each list with some clicks, in ascending order.

    A log that holds most impressions of another has most of its lists, to the last click; next week's has
    hardly any. Without ids of queries and documents there are none.
    """
    data, cells = counts.data, counts.cells
    telling = counts.data.query_id is not None and counts.data.doc_id is not None
    if not telling or not cells.row.size:
        return []
    queries, documents = IdCodes(), IdCodes()
    of_lists, of_rows = id_codes_of(data, queries, documents)
    key = documents.hashes(of_rows)[cells.row]
    for column in (cells.position, cells.impressions, cells.clicks):
        key = mixed(key + column.astype(np.uint64))
    sums = queries.hashes(of_lists)
    which = data.list_of_row[cells.row]
    np.add.at(sums, which, key)
    clicks = np.bincount(which, weights=cells.clicks, minlength=len(data))
    return [f"{digest:016x}" for digest in np.sort(mixed(sums[clicks >= TELLING_CLICKS])).tolist()]


def _mostly_known(digests: list[str], evidence: tuple[str, ...]) -> bool:
    """Say whether most lists of a log are among those kept of the training, the lowest digests of all."""
    trained = {digest for digest in evidence if len(digest) == DIGEST_LENGTH}
    if not trained:
        return False
    comparable = (
        digests if len(trained) < LISTS_KEPT else [digest for digest in digests if digest <= max(trained)]
    )
    return 2 * sum(digest in trained for digest in comparable) > len(comparable)


def content_digest(content: CountsOrLabels) -> str:
    """Return the SHA-256 of what was shown and clicked, or of labelled lists.

    Features, groups and propensities of impressions are no part of it: with others, they are the same
    impressions. A log has the same digest from any kind of file, and from a frame.
    """
    if isinstance(content, Counts) and not content.impressions.all():
        content = content[np.flatnonzero(content.impressions)]
    data = content.data
    sha256 = hashlib.sha256()
    for ids in (data.query_id, data.doc_id):
        sha256.update(b"" if ids is None else "\0".join(map(str, ids.tolist())).encode() + b"\0\0")
    columns: list[NDArray[Any]] = [data.offsets]
    if isinstance(content, Counts):
        cells = content.cells
        columns += [content.impressions, cells.row, cells.position, cells.impressions, cells.clicks]
    else:
        columns += [data.features, *([] if data.relevance is None else [data.relevance])]
    for column in columns:
        numbers = column.astype("<f4" if column.dtype.kind == "f" else "<i8", copy=False)
        sha256.update(np.ascontiguousarray(numbers).data)
    return sha256.hexdigest()


def query_digests(data: RankingDataset) -> NDArray[np.int64]:
    """Return a number for the id of each query, sorted; none where queries have no ids.

    A saved policy keeps them, so that an audit can tell which queries come again.
    """
    return np.unique(_digests_of_lists(data))


def _digests_of_lists(data: RankingDataset) -> NDArray[np.int64]:
    """Return a number for the query of each list; none where queries have no ids."""
    ids = data.query_id
    if ids is None:
        return np.empty(0, dtype=np.int64)
    digests = [hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in distinct(ids).tolist()]
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)[codes_of(ids)]
