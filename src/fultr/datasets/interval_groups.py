"""Groups of items by the interval that a number, such as an age or a quality, falls into."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.arguments import whole_number
from fultr.errors import InputError

LOWER_OF_TWO = 0.4
"""Where two groups are divided: the paper takes the 40th percentile."""


def quantile_cuts(values: ArrayLike, groups: int, label: str) -> NDArray[np.float64]:
    """Return the values that divide `values` into groups; a group holds what is at most its cut.

    Two groups are divided at the 40th percentile, more into intervals of equal size. A cut is one of the
    values, so groups are as equal as ties allow.

    Examples
    --------
    >>> quantile_cuts([1, 2, 3, 4, 5], 2, "quality").tolist()
    [2.0]
    """
    whole_number(groups, "groups", least=2)
    numbers = np.sort(np.asarray(values, dtype=np.float64))
    cuts = _cuts_of_sorted(numbers, groups)
    if not _separate(cuts, numbers[-1]):
        possible = [
            fewer for fewer in range(2, groups) if _separate(_cuts_of_sorted(numbers, fewer), numbers[-1])
        ]
        most = (
            f"at most {possible[-1]} groups are possible"
            if possible
            else "it cannot divide items into groups"
        )
        raise InputError(f"too many items have the same {label}; {most}", column="groups", value=groups)
    return cuts


def _cuts_of_sorted(numbers: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    shares = np.array([LOWER_OF_TWO]) if groups == 2 else np.arange(1, groups) / groups
    return np.asarray(np.quantile(numbers, shares, method="inverted_cdf"), dtype=np.float64)


def _separate(cuts: NDArray[np.float64], largest: float) -> bool:
    """Whether every interval holds something: no two cuts are the same, and something lies above the last."""
    return bool(np.all(np.diff(cuts) > 0) and cuts[-1] < largest)


def interval_codes(values: ArrayLike, cuts: ArrayLike) -> NDArray[np.int32]:
    """Return the number of the interval of each value; a value at a cut lies below it."""
    return np.searchsorted(np.asarray(cuts), np.asarray(values), side="left").astype(np.int32)


def interval_names(label: str, cuts: ArrayLike) -> tuple[str, ...]:
    """Name the intervals.

    Examples
    --------
    >>> interval_names("age", [30, 50])
    ('age<=30', '30<age<=50', 'age>50')
    """
    texts = [f"{cut:.6g}" for cut in np.asarray(cuts, dtype=np.float64)]
    between = [f"{low}<{label}<={high}" for low, high in pairwise(texts)]
    return (f"{label}<={texts[0]}", *between, f"{label}>{texts[-1]}")
