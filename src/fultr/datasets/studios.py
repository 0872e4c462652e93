"""The example of the paper's introduction: films of three studios."""

from __future__ import annotations

import numpy as np

from fultr.arguments import whole_number
from fultr.data.dataset import RankingDataset

RELEVANCE = (0.7, 0.69, 0.1)
"""How likely a user finds a film of each studio relevant."""


def studios(films: int = 30) -> RankingDataset:
    """Make the example of the paper's introduction: one list with the films of three studios.

    A user finds a film of the first studio relevant with probability 0.7, of the second with 0.69, of the
    third with 0.1. A ranking by relevance puts the whole first studio before the second, for a hundredth
    of relevance. Films stand in the order of the studios; nothing tells films of one studio apart.

    Parameters
    ----------
    films
        Films of each studio.

    Examples
    --------
    >>> data = studios()
    >>> data.rows, data.group_names, float(data.relevance[0])
    (90, ('studio 1', 'studio 2', 'studio 3'), 0.699999988079071)
    """
    whole_number(films, "films", least=1)
    studio = np.repeat(np.arange(len(RELEVANCE)), films)
    names = [f"studio {number + 1}" for number in range(len(RELEVANCE))]
    return RankingDataset(
        np.eye(len(RELEVANCE), dtype=np.float32)[studio],
        [0, studio.size],
        group=studio,
        group_names=names,
        relevance=np.array(RELEVANCE)[studio],
        query_id=[0],
        doc_id=np.arange(1, studio.size + 1),
        feature_names=names,
        group_columns=range(len(names)),
        source="Three studios, the example of the paper's introduction",
    )
