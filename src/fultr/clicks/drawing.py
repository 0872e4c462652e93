"""Impressions drawn from the position-based examination model, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress, checked_number, random_generator, whole_number, whole_numbers
from fultr.click_model import ClickNoise, PositionBias
from fultr.data import ClickLog, Planted, RankingDataset
from fultr.data.dataset import rows_of
from fultr.data.fields import DEEPEST_POSITION
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


@dataclass(frozen=True)
class Drawing:
    """Impressions to be drawn until there are as many of them, or of those with a click, as wanted.

    Parameters
    ----------
    about
        A log without impressions that says what is known of all of them.
    """

    about: ClickLog
    world: _World
    sampler: RankingSampler
    rng: np.random.Generator
    wanted: int
    goal: str
    progress: Progress | None

    @classmethod
    def of(
        cls,
        data: RankingDataset,
        policy: RankingPolicy,
        bias: PositionBias,
        noise: ClickNoise | None,
        *,
        clicks: int | None,
        impressions: int | None,
        keep_empty: bool,
        planting: Planting | None,
        top_k: int | None,
        seed: int | np.random.Generator,
        progress: Progress | None,
    ) -> Drawing:
        """Check everything that can be checked beforehand; arguments are those of `simulate_clicks`."""
        noise = noise or ClickNoise()
        if (clicks is None) == (impressions is None):
            raise InputError("give either {clicks} or {impressions}", options=["clicks", "impressions"])
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
        about = ClickLog(
            world.data,
            lists=np.empty(0, np.int64),
            position=np.empty(0, np.int32),
            click=np.empty(0, np.bool_),
            impression_id=np.empty(0, np.int64),
            position_bias=bias,
            noise=noise,
            empties_dropped=not keep_empty,
            origin={
                "simulated": True,
                "seed": None if isinstance(seed, np.random.Generator) else int(seed),
                "policy": repr(policy),
                goal: wanted,
            },
        )
        return cls(about, world, policy.sampler(data), rng, wanted, goal, progress)

    def steps(self) -> Iterator[ClickLog]:
        """Yield the impressions, many at a time, and refuse at the end if none of them has a click."""
        drawn = done = 0
        clicked = False
        while done < self.wanted:
            step = self.world.step(self.sampler, self.rng, drawn)
            counted = step.clicked if self.goal == "clicks" else np.ones(len(step), dtype=np.bool_)
            counts = np.cumsum(counted)
            last = int(np.searchsorted(counts, self.wanted - done)) + 1
            done += int(counts[min(last, len(step)) - 1])
            drawn += len(step)
            if last < len(step):
                step = step[:last]
            clicked = clicked or bool(step.click.any())
            yield step.drop_empties() if self.about.empties_dropped else step
            if done == 0 and drawn >= IMPRESSIONS_A_STEP * STEPS_WITHOUT_CLICK:
                raise InputError(NO_CLICK.format(drawn))
            if self.progress is not None:
                self.progress(done, self.wanted)
        if not clicked:
            raise InputError(NO_CLICK.format(self.wanted))


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
        plus, minus = self.noise.curves(self.examined.size - 1)
        # in the precision of the relevance, which seeds of logs rest on
        gain, false = ((plus - minus).astype(relevance.dtype), minus.astype(relevance.dtype))
        attraction = false[position] + gain[position] * relevance
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
        planted_position = rng.choice(np.asarray(planting.positions, dtype=np.int32), size=lists.size)
        # in a list too short for the position, the planted item comes last
        planted_position = np.minimum(planted_position, lengths + 1).astype(np.int32)
        position += position >= np.repeat(np.where(chosen, planted_position, np.iinfo(np.int32).max), lengths)
        planted_position = planted_position[chosen]
        _, minus = self.noise.curves(self.examined.size - 1)
        click = rng.random(planted_position.size) < self.examined[planted_position] * minus[planted_position]
        return Planted(impression=np.flatnonzero(chosen), position=planted_position, click=click)


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


def join_steps(parts: list[ClickLog]) -> ClickLog:
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
