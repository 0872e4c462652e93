"""Bringing rows together in place, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fultr.data.log_rows import Column, arrange_like, count_of, order_by_code, taken
from fultr.data.merging import sorted_within


@pytest.mark.parametrize("expected", [0, 7, 50])
def test_a_column_holds_all_its_batches(expected: int) -> None:
    column, batches = Column(np.int32, expected), [np.arange(size) for size in (3, 0, 10, 20)]
    for batch in batches:
        column.append(batch)
    assert column.finished().tolist() == np.concatenate(batches).tolist()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50))
def test_rows_are_brought_together_in_their_order(codes: list[int]) -> None:
    array = np.array(codes, dtype=np.int32)
    counts = count_of(array, 6)
    assert counts.tolist() == np.bincount(array, minlength=6).tolist()
    order = order_by_code(array, np.concatenate([[0], np.cumsum(counts)]))
    assert order.tolist() == np.argsort(array, kind="stable").tolist()
    assert taken(array, order).tolist() == sorted(codes)


@given(st.lists(st.lists(st.integers(0, 9), max_size=100), min_size=1, max_size=5))
def test_sorting_lists_keeps_ties_in_order(lists: list[list[int]]) -> None:
    values = np.array([value for one in lists for value in one], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, lists)])
    in_order, place = sorted_within(values, offsets)
    assert in_order.tolist() == [value for one in lists for value in sorted(one)]
    assert place.tolist() == [k for one in lists for k in np.argsort(one, kind="stable").tolist()]


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=1, max_size=4)))
def test_impressions_take_the_order_of_their_twin(impressions: list[list[int]]) -> None:
    items = np.array(impressions, dtype=np.int32).ravel()
    length = len(impressions[0])
    offsets = np.arange(0, items.size + 1, length)
    place = sorted_within(items, offsets)[1]
    for kind in (np.int32, np.float64, np.bool_):
        # the value tells the item it belongs to
        column = (items % 2 if kind is np.bool_ else items).astype(kind)
        arrange_like(np.zeros(len(impressions), dtype=np.int64), place, offsets, column)
        assert (column.reshape(-1, length) == column[:length]).all()
