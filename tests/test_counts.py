from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fultr import (
    ClickLog,
    Counts,
    InputError,
    PositionBias,
    RandomRanking,
    RankingDataset,
    count,
    simulate_clicks,
)
from fultr.data import merging
from fultr.data.grouping import (
    Packing,
    dense,
    first_repeat,
    group_numbers,
    group_rows,
    sort_key,
    stable_order,
)
from fultr.data.ids import TEXT, IdCodes, as_integers, codes_of, distinct
from fultr.data.tally import RepeatedDocumentError
from tests.counts import content
from tests.reference import compact_estimates, raw_estimates
from tests.strategies import logs

BIASES = [PositionBias.power(0.0), PositionBias.power(1.0), PositionBias([1, 0.9, 0.05, 0.5], beyond=0.3)]


def content_of(data: RankingDataset, row: int) -> bytes:
    """A row's content, in float64 so that it can be hashed into pretend expectations."""
    return np.concatenate([data.features[row], [data.group[row]]]).astype(np.float64).tobytes()


def pretend_expectations(data: RankingDataset) -> tuple[np.ndarray, np.ndarray]:
    """Any value and exposure for each row, the same for the same item of a query, wherever it is held."""
    made = []
    for row, which in enumerate(data.list_of_row):
        query = None if data.query_id is None else data.query_id[which]
        document = content_of(data, row) if data.doc_id is None else data.doc_id[row]
        made.append(np.random.default_rng(zlib.crc32(repr((query, document)).encode())).random(2))
    value, exposure = np.array(made).T
    return value, exposure


@given(logs(), st.sampled_from([None, *BIASES]))
def test_raw_and_compacted_logs_give_the_same_estimates(log: ClickLog, bias: PositionBias | None) -> None:
    if bias is None and log.propensity is None:
        bias = BIASES[1]
    log = replace(log, data=replace(log.data, group=np.minimum(log.data.group, 1)))
    value, exposure = pretend_expectations(log.data)
    compact = log.compact()
    expected = raw_estimates(log, bias, value, exposure, eps=0.07)
    found = compact_estimates(compact, bias, *pretend_expectations(compact.data), eps=0.07)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@given(logs(), st.sampled_from([1, 3, 8]))
def test_blocks_of_a_log_add_up(log: ClickLog, entries: int) -> None:
    whole = log.compact()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "ENTRIES_A_BLOCK", entries)
        assert content(log.compact()) == content(whole)
    assert int(whole.cells.impressions.sum()) == int((log.position > 0).sum())


def held_differently(log: ClickLog, rng: np.random.Generator) -> ClickLog:
    """The same log, each impression over a list of its own that holds its candidates in a random order."""
    orders = [rng.permutation(log.data.lengths[which]) for which in log.lists]
    rows = np.concatenate([log.data.offsets[k] + order for k, order in zip(log.lists, orders, strict=True)])
    entries = np.concatenate([log.offsets[i] + order for i, order in enumerate(orders)])
    data = log.data
    assert data.query_id is not None
    return replace(
        log,
        data=replace(
            data,
            features=data.features[rows],
            offsets=np.cumsum([0, *data.lengths[log.lists]]),
            group=data.group[rows],
            relevance=None,
            query_id=data.query_id[log.lists],
            doc_id=None if data.doc_id is None else data.doc_id[rows],
        ),
        lists=np.arange(len(log)),
        position=log.position[entries],
        click=log.click[entries],
        propensity=None if log.propensity is None else log.propensity[entries],
    )


@given(logs(ids=True), st.integers(0, 2**32 - 1))
def test_lists_held_in_different_orders_merge(log: ClickLog, seed: int) -> None:
    assert content(held_differently(log, np.random.default_rng(seed)).compact()) == content(log.compact())


def log_over(data: RankingDataset) -> ClickLog:
    entries = data.rows
    position = np.arange(entries) - np.repeat(data.offsets[:-1], data.lengths) + 1
    return ClickLog(data=data, lists=np.arange(len(data)), position=position, click=np.ones(entries, bool))


def test_different_candidate_sets_are_never_merged() -> None:
    # one query: {1,2}, {1,2,3}, {2,1}, {1,3}; only the first and the third are the same
    data = RankingDataset(
        np.zeros((9, 1)), [0, 2, 5, 7, 9], query_id=[1, 1, 1, 1], doc_id=[1, 2, 1, 2, 3, 2, 1, 1, 3]
    )
    compact = log_over(data).compact()
    found = zip(compact.data.lengths.tolist(), compact.impressions.tolist(), strict=True)
    assert sorted(found) == [(2, 1), (2, 2), (3, 1)]
    # the same documents of another query are other candidates
    other = RankingDataset(np.zeros((4, 1)), [0, 2, 4], query_id=[1, 2], doc_id=[1, 2, 1, 2])
    assert log_over(other).compact().impressions.tolist() == [1, 1]


@given(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_lists_merge_if_and_only_if_their_candidates_are_equal(sets: list[set[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents = np.concatenate([rng.permutation(sorted(one)) for one in sets])
    offsets = np.cumsum([0, *map(len, sets)])
    data = RankingDataset(
        np.zeros((documents.size, 1)), offsets, query_id=np.zeros(len(sets), int), doc_id=documents
    )
    counts = log_over(data).compact()
    found = [frozenset(part.tolist()) for part in np.split(ids_of(counts), counts.data.offsets[1:-1])]
    expected = Counter(frozenset(one) for one in sets)
    assert dict(zip(found, counts.impressions.tolist(), strict=True)) == expected


def ids_of(counts: Counts) -> Any:
    assert counts.data.doc_id is not None
    return counts.data.doc_id


def test_lists_of_one_key_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    # were all documents to have one hash, lists of different documents would get one key: that is noticed
    monkeypatch.setattr(IdCodes, "hashes", lambda _self, codes: np.ones(codes.size, dtype=np.uint64))
    data = RankingDataset(np.zeros((4, 1)), [0, 2, 4], query_id=[1, 1], doc_id=[1, 2, 1, 3])
    with pytest.raises(RepeatedDocumentError):
        log_over(data).compact()


def test_without_documents_each_row_is_an_item_of_its_own() -> None:
    data = RankingDataset([[0.0], [0.0]], [0, 1, 2], query_id=[1, 1])
    assert log_over(data).compact().impressions.tolist() == [1, 1]


def test_lists_without_query_ids_are_never_merged() -> None:
    compact = log_over(RankingDataset(np.zeros((4, 1)), [0, 2, 4])).compact()
    assert compact.impressions.tolist() == [1, 1]


def test_conflicting_features_or_groups_are_refused_with_both_rows() -> None:
    fields: dict[str, Any] = {"offsets": [0, 2, 4], "query_id": ["q", "q"], "doc_id": ["a", "b", "b", "a"]}
    data = RankingDataset([[1.0], [2.0], [2.0], [9.0]], **fields)
    with pytest.raises(InputError, match="row 4, column 'doc_id': .*in row 1 of its query .*got 'a'"):
        log_over(data).compact()
    grouped = RankingDataset([[1.0], [2.0], [2.0], [1.0]], group=[0, 0, 1, 0], **fields)
    with pytest.raises(InputError, match="row 3, column 'doc_id': .*in row 2"):
        log_over(grouped).compact()


def test_clipping_comes_before_summing() -> None:
    data = RankingDataset([[0.0], [0.0]], [0, 2], query_id=[1], doc_id=[1, 2])
    log = ClickLog(data=data, lists=[0, 0, 0], position=[1, 2, 2, 1, 2, 1], click=[1, 0, 1, 0, 1, 0])
    compact, bias = log.compact(), PositionBias([1, 0.01])
    assert compact.ips_weights(bias).tolist() == [201, 0]
    assert compact.ips_weights(bias, clip=10).tolist() == [21, 0]
    assert compact.squared_ips_weights(bias, clip=10).tolist() == [201, 0]
    assert compact.logged_exposure(bias).tolist() == pytest.approx([1.02, 2.01])


def test_never_shown_items_and_lists_cost_nothing() -> None:
    data = RankingDataset(np.zeros((6, 1)), [0, 2, 4, 6], query_id=[1, 2, 3], doc_id=[1, 2, 1, 2, 1, 2])
    log = ClickLog(data=data, lists=[2, 2], position=[1, 0, 0, 1], click=[1, 0, 0, 0])
    compact = log.compact()
    assert compact.data.query_id is not None
    assert compact.data.query_id.tolist() == [3]
    assert compact.shown().tolist() == [1, 1]
    assert compact.impressions.tolist() == [2]
    assert "2 impressions of 1 lists" in repr(compact)


def test_compacting_many_impressions_keeps_counts() -> None:
    data = RankingDataset(
        np.zeros((200, 1)), np.arange(0, 201, 20), relevance=np.tile([1, 0, 0, 0], 50), query_id=np.arange(10)
    )
    log = simulate_clicks(data, RandomRanking(), PositionBias.power(1.0), impressions=3_000, seed=1)
    compact = log.compact()
    assert compact.impressions.sum() == 3_000
    assert compact.cells.impressions.sum() == log.entries
    assert compact.cells.clicks.sum() == log.click.sum()
    assert compact.clicked_impressions.sum() == log.clicked.sum()
    # each once, and in order, so that sums are the same ones however a log was counted
    assert (np.diff(compact.cells.row * 100 + compact.cells.position) > 0).all()


def test_cells_are_in_order_where_few_of_many_positions_were_seen() -> None:
    data = RankingDataset(np.zeros((1, 1)), [0, 1], query_id=[1])
    log = ClickLog(data, lists=[0] * 5, position=[90, 3, 200, 3, 41], click=[1, 0, 0, 1, 0])
    cells = log.compact().cells
    assert cells.position.tolist() == [3, 41, 90, 200]
    assert cells.impressions.tolist() == [2, 1, 1, 1]
    assert cells.clicks.tolist() == [1, 0, 1, 0]


COLUMNS = st.integers(0, 30).flatmap(
    lambda size: st.lists(
        st.one_of(
            st.lists(st.integers(-(2**63), 2**63 - 1), min_size=size, max_size=size),
            st.lists(st.integers(-2, 2), min_size=size, max_size=size),
            st.lists(st.sampled_from([0.5, -1.0, 1e300]), min_size=size, max_size=size),
        ).map(
            lambda values: np.array(values, dtype=np.float64 if 0.5 in values or 1e300 in values else None)
        ),
        min_size=1,
        max_size=4,
    )
)


@given(COLUMNS)
def test_rows_are_sorted_and_grouped_by_all_columns(columns: list[Any]) -> None:
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    order, starts = group_rows(*columns)
    assert [rows[index] for index in order] == sorted(rows)
    assert order.tolist() == sorted(range(len(rows)), key=lambda index: (rows[index], index))
    assert len(starts) == len(set(rows))
    numbers = group_numbers(order, starts)
    assert numbers.tolist() == [sorted(set(rows)).index(row) for row in rows]
    expected = next(((rows.index(row), i) for i, row in enumerate(rows) if row in rows[:i]), None)
    assert first_repeat(*columns) == expected
    assert dense(sort_key(*columns)).tolist() == numbers.tolist()


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 2**40), st.booleans()), max_size=20))
def test_packed_columns_come_back(rows: list[tuple[int, int, bool]]) -> None:
    kinds: tuple[Any, ...] = (np.int32, np.int64, np.bool_)
    columns = [np.array([row[number] for row in rows], dtype=kind) for number, kind in enumerate(kinds)]
    packing = Packing(columns)
    assert packing.fits
    for given_column, found in zip(columns, packing.unpack(packing.pack(columns)), strict=True):
        assert found.dtype == given_column.dtype
        assert found.tolist() == given_column.tolist()


TEXTS = st.lists(st.text(max_size=6), max_size=30)


@given(TEXTS)
def test_text_ids_are_sorted_by_their_bytes(texts: list[str]) -> None:
    try:
        ordered = sorted(set(texts), key=str.encode)
    except UnicodeEncodeError:
        return  # half a character is no text
    ids = np.array(texts, dtype=TEXT)
    assert codes_of(ids).tolist() == [ordered.index(text) for text in texts]
    assert distinct(ids).tolist() == ordered


@given(st.lists(TEXTS, max_size=4))
def test_codes_of_text_are_the_same_in_every_batch(batches: list[list[str]]) -> None:
    codes = IdCodes()
    seen: dict[str, int] = {}
    for batch in batches:
        try:
            series = pl.Series(batch, dtype=pl.String)
        except UnicodeEncodeError:
            return
        for text, code in zip(batch, codes.encode(series).tolist(), strict=True):
            assert seen.setdefault(text, code) == code
    assert len(set(seen.values())) == len(seen)
    numbers = np.array(list(seen.values()), dtype=np.int64)
    assert codes.ids(numbers).tolist() == list(seen)
    assert len(set(codes.hashes(numbers).tolist())) == len(seen)


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1", "-2", "0"], True),
        (["1", "02"], False),
        (["9223372036854775807", "-9223372036854775808"], True),
        (["9223372036854775808"], False),
        (["1", ""], False),
        (["1.0"], False),
        ([" 1"], False),
        (["-0"], False),
        (["1" * 30_000], False),
        (["a\0b", "a\0c"], False),
    ],
)
def test_text_is_an_integer_only_as_numbers_are_written(texts: list[str], numbers: bool) -> None:
    found = as_integers(np.array(texts, dtype=TEXT))
    assert found.tolist() == ([int(text) for text in texts] if numbers else texts)


def test_an_integer_and_its_text_have_one_hash() -> None:
    words, numbers = IdCodes(), IdCodes()
    code = words.encode(pl.Series(["7", "x", "-3"]))
    assert words.hashes(code)[[0, 2]].tolist() == numbers.hashes(np.array([7, -3])).tolist()


def test_ids_with_a_null_character_stay_apart() -> None:
    table = {
        "impression_id": [1, 2],
        "query_id": ["q\0a", "q\0b"],
        "doc_id": [1, 1],
        "position": [1, 1],
        "click": [1, 0],
    }
    assert count(table).impressions.tolist() == [1, 1]


@pytest.mark.parametrize("bits", [0, 1, 5, 53, 54, 55, 63, 64])
@pytest.mark.parametrize("size", [0, 1, 2, 1023, 1024])
def test_keys_are_sorted_stably_however_many_bits_they_have(bits: int, size: int) -> None:
    key = np.random.default_rng(size).integers(0, (1 << bits) - 1, size, dtype=np.uint64, endpoint=True)
    key[: size // 2] = (1 << bits) - 1
    assert stable_order(key).tolist() == np.argsort(key, kind="stable").tolist()
