from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fultr import (
    ClickLog,
    CompactLog,
    InputError,
    PositionBias,
    RandomRanking,
    RankingDataset,
    simulate_clicks,
)
from fultr.data import compact_log
from fultr.data.merging import group_equal_lists, item_codes, merge_lists, order_within
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


def cells_of(log: CompactLog) -> list[tuple[float, ...]]:
    """All cells with their counts, in an order of their own."""
    cells = log.cells
    held = np.zeros(cells.row.size) if cells.propensity is None else cells.propensity
    columns = (cells.row, cells.position, held, cells.impressions, cells.clicks)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@given(logs(), st.sampled_from([1, 3, 8]))
def test_blocks_of_a_log_add_up(log: ClickLog, entries: int) -> None:
    whole = log.compact()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact_log, "ENTRIES_A_BLOCK", entries)
        assert cells_of(log.compact()) == cells_of(whole)
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


def sums_by_item(log: CompactLog) -> dict[object, list[float]]:
    assert log.data.query_id is not None
    sums: dict[object, list[float]] = {}
    bias = PositionBias.power(0.7)
    columns = (
        log.ips_weights(bias),
        log.squared_ips_weights(bias),
        log.logged_exposure(bias),
        log.shown(),
        log.clicks(),
    )
    for row, which in enumerate(log.data.list_of_row):
        key = (log.data.query_id[which], content_of(log.data, row), log.data.lengths[which])
        so_far = sums.setdefault(key, [0.0] * len(columns))
        for number, column in enumerate(columns):
            so_far[number] += column[row]
    return sums


@given(logs(ids=True), st.booleans(), st.integers(0, 2**32 - 1))
def test_lists_held_in_different_orders_merge(log: ClickLog, with_documents: bool, seed: int) -> None:
    if not with_documents:
        log = replace(log, data=replace(log.data, doc_id=None))
    scattered = held_differently(log, np.random.default_rng(seed)).compact()
    direct = log.compact()
    assert len(scattered.data) == len(direct.data)
    assert sorted(scattered.impressions) == sorted(direct.impressions)
    assert sorted(scattered.clicked_impressions) == sorted(direct.clicked_impressions)
    mine, theirs = sums_by_item(scattered), sums_by_item(direct)
    assert mine.keys() == theirs.keys()
    for key, sums in mine.items():
        np.testing.assert_allclose(sums, theirs[key], rtol=1e-12)


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
    assert compact.impressions.tolist() == [2, 1, 1]
    assert compact.data.lengths.tolist() == [2, 3, 2]
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
    merged = merge_lists(data)
    for one in range(len(sets)):
        for two in range(len(sets)):
            assert (merged.number[one] == merged.number[two]) == (sets[one] == sets[two])
    assert (documents[merged.row] == documents).all()


def test_lists_of_equal_hash_are_told_apart() -> None:
    # many short lists in a table sized for them: collisions of slots are certain, merging must stay exact
    items = np.arange(20_000)
    number, representative = group_equal_lists(np.concatenate([items, items]), np.arange(40_001))
    assert number.tolist() == [*range(20_000), *range(20_000)]
    assert representative.tolist() == list(range(20_000))


def test_without_documents_features_and_groups_tell_items_apart() -> None:
    data = RankingDataset([[0.0], [-0.0], [0.0]], [0, 1, 2, 3], group=[0, 0, 1], query_id=[1, 1, 1])
    codes = item_codes(data)
    assert codes[0] == codes[1] != codes[2]


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


@given(st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=8), min_size=1, max_size=6))
def test_order_within_sorts_each_list(lists: list[list[int]]) -> None:
    values, offsets = np.concatenate(lists), np.cumsum([0, *map(len, lists)])
    assert values[order_within(values, offsets)].tolist() == [v for one in lists for v in sorted(one)]
