"""Ids as small numbers, against a dictionary in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fultr import InputError
from fultr.data.coding import Coder
from fultr.data.columns import Place

WHOLE = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
BATCHES = st.lists(st.lists(WHOLE, max_size=40), max_size=6) | st.lists(
    st.lists(st.text(max_size=2), max_size=40), max_size=6
)


@given(BATCHES, st.booleans())
def test_values_are_numbered_in_the_order_they_appear(batches: list[list[Any]], in_runs: bool) -> None:
    whole = any(isinstance(value, int) for batch in batches for value in batch)
    kind = pa.int64() if whole else pa.string()
    coder, known = Coder("x"), dict[Any, int]()
    for batch in batches:
        expected = [known.setdefault(value, len(known)) for value in batch]
        assert coder.encode(pa.array(batch, kind), Place(), in_runs=in_runs).tolist() == expected
    assert len(coder) == len(known)
    assert [coder.value(number) for number in range(len(coder))] == list(known)
    assert coder.ids(whole_if_possible=False).tolist() == list(known)
    strange = [5, 77] if whole else ["strange", ""]
    looked_up = coder.lookup(pa.array(strange, kind), Place()).tolist()
    assert looked_up == [known.get(value, -1) for value in strange]
    assert len(coder) == len(known)


def test_many_numbers_keep_their_own_codes() -> None:
    coder, values = Coder("x"), np.random.default_rng(0).permutation(50_000) * 2**40
    for start in range(0, values.size, 1_000):
        codes = coder.encode(pa.array(np.repeat(values[start : start + 1_000], 3)), Place())
        assert (codes == np.repeat(np.arange(start, start + 1_000), 3)).all()


def test_missing_text_and_dictionaries() -> None:
    coder = Coder("x")
    assert coder.encode(pa.array(["b", None, "a"]), Place()).tolist() == [0, -1, 1]
    encoded = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["a", "c"]))
    assert coder.encode(encoded, Place()).tolist() == [2, -1, 1]
    assert coder.texts() == ["b", "a", "c"]
    with pytest.raises(InputError, match="int64 here, but string where they came before"):
        coder.encode(pa.array([1]), Place())


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        (["1", "-5"], True),
        (["9223372036854775807", "-9223372036854775808"], True),
        (["9223372036854775808"], False),
        (["-9223372036854775809"], False),
        (["01"], False),
        (["-0"], False),
        (["1_0"], False),
        (["\u0661"], False),
    ],
)
def test_text_is_whole_numbers_if_it_is_written_as_they_are(texts: list[str], whole: bool) -> None:
    coder = Coder("x")
    coder.encode(pa.array(texts), Place())
    expected: list[Any] = [int(text) for text in texts] if whole else texts
    assert coder.ids(whole_if_possible=True).tolist() == expected
