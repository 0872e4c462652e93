"""Random datasets and logs for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from fultr import ClickLog, ClickNoise, PositionBias, RankingDataset
from fultr.data import Planted

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)


@st.composite
def datasets(draw: st.DrawFn, *, ids: bool | None = None, max_lists: int = 6) -> RankingDataset:
    """Draw lists of 1 to 6 items, with or without ids, groups, relevance and features."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=max_lists))
    rows, width = sum(lengths), draw(st.integers(0, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = tuple(draw(st.lists(TEXTS, unique=True, max_size=3)))
    fields: dict[str, Any] = {}
    with_ids = draw(st.booleans()) if ids is None else ids
    if with_ids:
        numbers = rng.permutation(1000)[: len(lengths)]
        documents = rng.permutation(1000)[:rows]
        text = draw(st.booleans())
        fields["query_id"] = [f"q é,{n}" for n in numbers] if text else numbers
        fields["doc_id"] = [f'd#"{n}' for n in documents] if text else documents
    if draw(st.booleans()):
        fields["relevance"] = rng.choice([0, 1, 0.5], size=rows)
    return RankingDataset(
        features=rng.choice([0, -1.5, 1e-30, 3e38, 0.1], size=(rows, width)).astype(np.float32),
        offsets=np.cumsum([0, *lengths]),
        group=rng.integers(-1, len(names), size=rows),
        group_names=names,
        group_columns=tuple(range(0, width, 2)),
        source=draw(st.sampled_from(["", "made up"])),
        **fields,
    )


@st.composite
def logs(draw: st.DrawFn, *, ids: bool | None = None) -> ClickLog:
    """Draw a log with at least one click: unseen candidates, planted items, propensities and the rest."""
    data = draw(datasets(ids=ids))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    impressions = draw(st.integers(1, 8))
    lists = rng.integers(len(data), size=impressions)
    position: list[int] = []
    click: list[bool] = []
    planted: dict[str, list[int]] = {"impression": [], "position": [], "click": []}
    with_planted, top = draw(st.booleans()), draw(st.integers(1, 8))
    for number, which in enumerate(lists):
        length = int(data.lengths[which])
        order = rng.permutation(length + 1)[: length + 1] + 1
        shown = np.where(order > top, 0, order)
        position.extend(shown[:length])
        click.extend(rng.random(length) < np.where(shown[:length] > 0, 0.4, 0))
        if with_planted and shown[length] > 0:
            planted["impression"].append(number)
            planted["position"].append(int(shown[length]))
            planted["click"].append(int(rng.random() < 0.3))
    places, clicks = np.array(position, dtype=np.int32), np.array(click, dtype=np.bool_)
    if not clicks.any():
        places[0], clicks[0] = 100, True
    with_propensity = draw(st.booleans())
    return ClickLog(
        data=data,
        lists=lists,
        position=places,
        click=clicks,
        propensity=np.where(places > 0, 1 / np.maximum(places, 1), np.nan) if with_propensity else None,
        planted=Planted(
            impression=np.array(planted["impression"], dtype=np.int64),
            position=np.array(planted["position"], dtype=np.int32),
            click=np.array(planted["click"], dtype=np.bool_),
            propensity=1 / np.array(planted["position"], dtype=np.float64) if with_propensity else None,
        ),
        impression_id=draw(st.sampled_from([None, rng.permutation(impressions)])),
        timestamp=draw(st.sampled_from([None, rng.integers(0, 10**9, size=impressions)])),
        position_bias=draw(
            st.sampled_from([None, PositionBias.power(0.5), PositionBias([1, 0.3, 0.2], beyond="zero")])
        ),
        noise=draw(st.sampled_from([None, ClickNoise(0.9, 0.05), ClickNoise([0.9, 0.8], [0.3, 0.1, 0.05])])),
        empties_dropped=draw(st.booleans()),
        origin=draw(st.sampled_from([{}, {"made": "by hand"}])),
    )
