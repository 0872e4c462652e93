"""The studios of the paper's introduction."""

from __future__ import annotations

import numpy as np
import pytest

from fultr.datasets import studios
from fultr.errors import InputError


def test_three_studios_of_thirty_films() -> None:
    data = studios()
    assert (len(data), data.rows) == (1, 90)
    assert data.group_names == ("studio 1", "studio 2", "studio 3")
    assert data.group_columns == (0, 1, 2)
    assert data.relevance is not None
    for studio, relevance in enumerate((0.7, 0.69, 0.1)):
        of_studio = data.group == studio
        assert of_studio.sum() == 30
        assert np.allclose(data.relevance[of_studio], relevance)
        assert np.array_equal(data.features[of_studio], np.tile(np.eye(3)[studio], (30, 1)))


def test_ranking_by_relevance_gives_the_exposures_of_the_claims() -> None:
    data = studios()
    exposure = 1 / np.arange(1, 91)
    # films stand in the order of their relevance already
    by_studio = [exposure[data.group == studio].sum() for studio in range(3)]
    assert by_studio == pytest.approx([3.99, 0.68, 0.40], abs=0.01)
    assert data.relevance is not None
    merit = [float(data.relevance[data.group == studio].sum()) for studio in range(3)]
    squares = [(merit[j] * by_studio[i] - merit[i] * by_studio[j]) ** 2 for i in range(3) for j in range(i)]
    assert sum(squares) == pytest.approx(4720, abs=5)


def test_other_numbers_of_films() -> None:
    assert studios(films=1).rows == 3
    for films in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="column 'films'"):
            studios(films=films)  # type: ignore[arg-type]
