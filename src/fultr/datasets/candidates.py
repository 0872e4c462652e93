"""Drawing lists of candidates with a set number of relevant ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import whole_number
from fultr.errors import InputError


def check_list_shape(length: int, column: str, relevant: int) -> None:
    """Raise if no list of that length, an argument called `column`, has so many relevant items."""
    whole_number(length, column, least=1)
    if whole_number(relevant, "relevant", least=1) > length:
        raise InputError(f"a list holds only {length}", column="relevant", value=relevant)


def draw_candidates(
    relevant_rows: NDArray[np.int64],
    other_rows: NDArray[np.int64],
    *,
    length: int,
    relevant: int,
    generator: np.random.Generator,
) -> NDArray[np.int64] | None:
    """Draw one list of different rows, `relevant` of them (or all there are, if fewer) relevant.

    The order is shuffled: it must not tell which rows are relevant. There is no such list, None, if no row
    is relevant or too few others are left to fill it up.
    """
    drawn = min(relevant, relevant_rows.size)
    if drawn == 0 or other_rows.size < length - drawn:
        return None
    rows = np.concatenate(
        [
            generator.choice(relevant_rows, size=drawn, replace=False),
            generator.choice(other_rows, size=length - drawn, replace=False),
        ]
    )
    generator.shuffle(rows)
    return rows
