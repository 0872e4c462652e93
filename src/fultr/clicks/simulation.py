"""Clicks drawn from the position-based examination model, over labelled data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress, checked_number, random_generator, whole_number, whole_numbers
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import ClickLog, Planted, RankingDataset
from fultr.data.dataset import rows_of
from fultr.data.log_fields import DEEPEST_POSITION
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError
from fultr.policy import RankingPolicy, RankingSampler

IMPRESSIONS_A_STEP = 16_384
"""Impressions drawn together. A seed stands for the same log only while this stays as it is."""

STEPS_WITHOUT_CLICK = 200
"""After so many steps without any click, asking for clicks is given up."""

NO_CLICK = "not one click in {} impressions: relevant items are never examined, or there are none"


@dataclass(frozen=True)
class Planting:
    """Put an item known to be irrelevant into a share of the impressions, at one of some positions.

    The items from that position on move down by one; in a list that is too short for the position, the
    planted item comes last. Its clickthrough rate is v_k eps_minus, which is what
    `estimate_noise` measures.
    """

    share: float = 0.01
    positions: tuple[int, ...] = (1, 2, 3, 4, 5)

    def __post_init__(self) -> None:
        rule = "must lie above 0 and be at most 1"
        share = checked_number(self.share, "share", rule, lambda given: 0 < given <= 1)
        places = whole_numbers(self.positions, "positions")
        if places.ndim != 1 or places.min(initial=DEEPEST_POSITION) < 1 or not places.size:
            raise InputError("positions start at 1", column="positions", value=self.positions)
        if places.max() > DEEPEST_POSITION:
            raise InputError(f"must be at most {DEEPEST_POSITION}", column="positions", value=places.max())
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "positions", tuple(places.tolist()))


def simulate_clicks(
    data: RankingDataset,
    policy: RankingPolicy,
    bias: PositionBias,
    noise: ClickNoise | None = None,
    *,
    clicks: int | None = None,
    impressions: int | None = None,
    keep_empty: bool = True,
    planting: Planting | None = None,
    top_k: int | None = None,
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
) -> ClickLog:
    """Show lists drawn at random, ranked by a policy, to simulated users, and log what they click.

    An item at position k is clicked with probability v_k eps_plus if it is relevant and v_k eps_minus if not,
    independently of the others. A relevance between 0 and 1 is the probability that the item is relevant
    to the user of an impression.

    Parameters
    ----------
    data
        Lists with relevance in [0, 1].
    policy
        What ranks them: a logging policy such as `RankingSVM.train(data)`.
    bias
        The examination probabilities v_k.
    noise
        eps_plus and eps_minus; none by default.
    clicks
        Stop after this many impressions with a click (the paper's N).
    impressions
        Draw this many impressions. Give this or `clicks`.
    keep_empty
        Whether impressions without a click stay in the log. A log without them says so.
    planting
        Put items known to be irrelevant into a share of the impressions.
    top_k
        Show only this many items; the others have no position.
    seed
        The same seed gives the same log. A larger number of clicks or impressions continues it. The log
        remembers a number, but not a generator.
    progress
        Called with what is done and what was asked for.

    Examples
    --------
    >>> from fultr.datasets import studios
    >>> from fultr.policy import RandomRanking
    >>> log = simulate_clicks(studios(), RandomRanking(), PositionBias.power(1.0), clicks=100)
    >>> int(log.clicked.sum())
    100
    """
    noise = noise or ClickNoise()
    if (clicks is None) == (impressions is None):
        raise InputError("give either clicks= or impressions=")
    goal = "clicks" if impressions is None else "impressions"
    wanted = whole_number(clicks if impressions is None else impressions, goal, least=1)
    if not len(data):
        raise InputError("there are no lists to show", column="data")
    world = _World(
        data=replace(data, relevance=None),
        relevance=_click_relevance(data),
        examined=_examined(data, bias, planting, top_k),
        noise=noise,
        planting=planting,
        top_k=top_k,
    )
    rng = random_generator(seed)
    sampler = policy.sampler(data)
    steps: list[ClickLog] = []
    drawn = done = 0
    while done < wanted:
        step = world.step(sampler, rng, drawn)
        counts = np.cumsum(step.clicked if impressions is None else np.ones(len(step), dtype=np.int64))
        last = int(np.searchsorted(counts, wanted - done)) + 1
        done += int(counts[min(last, len(step)) - 1])
        drawn += len(step)
        if last < len(step):
            step = step[:last]
        steps.append(step if keep_empty else step.drop_empties())
        if done == 0 and drawn >= IMPRESSIONS_A_STEP * STEPS_WITHOUT_CLICK:
            raise InputError(NO_CLICK.format(drawn))
        if progress is not None:
            progress(done, wanted)
    origin = {
        "simulated": True,
        "seed": None if isinstance(seed, np.random.Generator) else int(seed),
        "policy": repr(policy),
        goal: wanted,
    }
    log = _join_steps(steps)
    if not log.click.any():
        raise InputError(NO_CLICK.format(drawn if impressions is None else impressions))
    return replace(log, position_bias=bias, noise=noise, empties_dropped=not keep_empty, origin=origin)


@dataclass(frozen=True)
class _World:
    """What stays the same from one simulated step to the next."""

    data: RankingDataset
    relevance: NDArray[np.float32]
    examined: NDArray[np.float64]
    noise: ClickNoise
    planting: Planting | None
    top_k: int | None

    def step(self, sampler: RankingSampler, rng: np.random.Generator, first_id: int) -> ClickLog:
        lists = rng.integers(len(self.data), size=IMPRESSIONS_A_STEP)
        position = sampler(lists, rng)
        planted = (
            Planted.none() if self.planting is None else self._plant(self.planting, lists, position, rng)
        )
        if self.top_k is not None:
            position = np.where(position > self.top_k, NOT_SHOWN, position).astype(np.int32)
        relevance = self.relevance[rows_of(self.data.offsets, lists)]
        attraction = self.noise.eps_minus + (self.noise.eps_plus - self.noise.eps_minus) * relevance
        return ClickLog(
            data=self.data,
            lists=lists,
            position=position,
            click=rng.random(position.size) < self.examined[position] * attraction,
            planted=planted,
            impression_id=np.arange(first_id, first_id + lists.size),
        )

    def _plant(
        self,
        planting: Planting,
        lists: NDArray[np.int64],
        position: NDArray[np.int32],
        rng: np.random.Generator,
    ) -> Planted:
        """Draw the planted items and move the others out of their way, in place."""
        lengths = self.data.lengths[lists]
        chosen = rng.random(lists.size) < planting.share
        place = rng.choice(np.asarray(planting.positions, dtype=np.int32), size=lists.size)
        # in a list too short for the position, the planted item comes last
        place = np.minimum(place, lengths + 1).astype(np.int32)
        position += position >= np.repeat(np.where(chosen, place, np.iinfo(np.int32).max), lengths)
        place = place[chosen]
        click = rng.random(place.size) < self.examined[place] * self.noise.eps_minus
        return Planted(impression=np.flatnonzero(chosen), position=place, click=click)


def _click_relevance(data: RankingDataset) -> NDArray[np.float32]:
    if data.relevance is None:
        raise InputError("clicks can be simulated only on lists with relevance", column="relevance")
    wrong = np.flatnonzero(data.relevance > 1)
    if wrong.size:
        problem = "relevance must be from 0 to 1; turn graded judgments into it with binarize(threshold)"
        raise InputError(problem, row=wrong[0] + 1, column="relevance", value=data.relevance[wrong[0]])
    return data.relevance


def _examined(
    data: RankingDataset, bias: PositionBias, planting: Planting | None, top_k: int | None
) -> NDArray[np.float64]:
    """Return v_k for all positions that can be shown."""
    if top_k is not None:
        whole_number(top_k, "top_k", least=1)
    deepest = int(data.lengths.max(initial=0)) + (planting is not None)
    if top_k is not None:
        if planting is not None and max(planting.positions) > top_k:
            raise InputError(f"must lie within the top {top_k}", column="positions", value=planting.positions)
        deepest = min(deepest, top_k)
    examined = bias.curve(deepest)
    if examined.max(initial=0.0) > 1:
        position = int(np.argmax(examined))
        problem = "an examination probability above that of position 1 cannot be simulated"
        raise InputError(problem, column=f"v_{position}", value=examined[position])
    return examined


def _join_steps(parts: list[ClickLog]) -> ClickLog:
    """Put the impressions of logs over one and the same dataset after one another."""
    before = np.cumsum([0, *(len(part) for part in parts)])

    def joined(column: str) -> Any:
        values = [getattr(part, column) for part in parts]
        return None if any(value is None for value in values) else np.concatenate(values)

    planted = [part.planted for part in parts]
    return replace(
        parts[0],
        lists=joined("lists"),
        position=joined("position"),
        click=joined("click"),
        propensity=joined("propensity"),
        planted=Planted(
            impression=np.concatenate([p.impression + b for p, b in zip(planted, before, strict=False)]),
            position=np.concatenate([p.position for p in planted]),
            click=np.concatenate([p.click for p in planted]),
        ),
        impression_id=joined("impression_id"),
        timestamp=joined("timestamp"),
    )
