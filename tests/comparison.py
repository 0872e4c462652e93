"""What it means for two datasets to be the same."""

from __future__ import annotations

import numpy as np

from fultr import RankingDataset


def assert_same_arrays(one: RankingDataset, other: RankingDataset) -> None:
    """All columns are equal, of the same type, to the last bit of a feature."""
    assert one.features.tobytes() == other.features.tobytes()
    for name in ("features", "offsets", "relevance", "group", "query_id", "doc_id", "comment"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None), name
        if first is not None:
            assert first.dtype == second.dtype, name
            np.testing.assert_array_equal(first, second, err_msg=name)


def assert_same_data(one: RankingDataset, other: RankingDataset) -> None:
    """All columns and all names are equal."""
    assert_same_arrays(one, other)
    for name in ("feature_names", "group_names", "group_columns", "source"):
        assert getattr(one, name) == getattr(other, name), name
