"""Auditing: logged rankings and candidate policies measured from clicks on the same draws of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress, whole_number
from fultr.audit.checks import (
    check_limit,
    counted,
    findings_on,
    named_policies,
    noise_to_take_off,
    notes_on_log,
    queries_of_pairs,
    refuse_training_queries,
)
from fultr.audit.contributions import Clicks, Contributions
from fultr.audit.curves import examination_for
from fultr.audit.result import (
    LOGGED,
    Audit,
    Difference,
    Estimate,
    GroupAudit,
    OtherBias,
    PairAudit,
    RankingAudit,
)
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks import BiasEstimate
from fultr.data import ClickLog, Counts
from fultr.evaluation import (
    Resampled,
    percentile_interval,
    resampled_errors,
    simultaneous_intervals,
    sum_of_squares_bounds,
)
from fultr.evaluation.bootstrap import checked_level
from fultr.evaluation.contributions import Ranker
from fultr.evaluation.inputs import ScoringPolicy, ranker_of

Array = NDArray[np.float64]

LEAST_RESAMPLES = 50

ROUNDING = 1e-12
"""What two numbers differ by, relative to their size, if they differ by rounding only."""


def audit(
    log: ClickLog | Counts,
    policies: Mapping[str, ScoringPolicy] | None = None,
    *,
    position_bias: PositionBias | BiasEstimate | None = None,
    noise: ClickNoise | None = None,
    max_disparity: float | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    force: bool = False,
    stochastic: bool | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Measure how fair and how useful the logged ranking and candidate policies are, from clicks alone.

    Parameters
    ----------
    log
        Clicks on other queries than those the policies were trained on.
    policies
        Candidates by name: anything that `fultr.evaluate` takes.
    position_bias
        The examination of positions; by default that of the log, or the one its propensities follow, or that
        of the policies if they have the same. An estimate brings intervals, at whose ends everything is
        measured again; for any other the power is assumed to be off by up to 10%.
    noise
        What to take off the merit; by default that of the log, and `ClickNoise()` for nothing.
    max_disparity
        The limit for the root of the sum of D_ij^2. A ranking passes if the upper confidence bound of that
        keeps the limit.
    level, resamples, seed
        The confidence level of the intervals, and how often and from which seed queries are drawn for them.
    force
        Audit a policy also on queries that it was trained on, where its disparity is small by construction.
    stochastic
        Measure policies as ones that draw rankings, or as ones that do not, whatever they are themselves.
    progress
        Called with what is done and with all there is to do.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0).test
    >>> bias = PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data, fultr.RandomRanking(), bias, impressions=2_000, seed=0)
    >>> found = audit(log, {"shuffled": fultr.RandomRanking()}, max_disparity=5.0)
    >>> found.passes, len(found.logged.pairs)
    (True, 1)
    """
    checked_level(level)
    whole_number(resamples, "resamples", least=LEAST_RESAMPLES)
    whole_number(seed, "seed")
    named, counts = named_policies({} if policies is None else policies), counted(log)
    notes = refuse_training_queries(named, counts, force=force)
    taken_off, about_noise = noise_to_take_off(noise, counts)
    met = queries_of_pairs(counts)
    check_limit(max_disparity, counts, met)
    longest = _longest(counts, named)
    examined = examination_for(position_bias, counts, named, longest)
    rankers = {name: ranker_of(policy, counts.data, stochastic, "double") for name, policy in named.items()}
    work = _Auditor(counts, rankers, taken_off, max_disparity, level, resamples, seed, progress)
    others = examined.others if met else {}
    work.total = (1 + len(others)) * (1 + len(rankers))
    rankings = work.rankings(examined.bias, met, others)
    return Audit(
        rankings=rankings,
        position_bias=examined.bias,
        bias_source=examined.source,
        other_biases=others,
        bias_uncertainty=examined.uncertainty,
        noise=taken_off,
        max_disparity=None if max_disparity is None else float(max_disparity),
        level=float(level),
        resamples=int(resamples),
        seed=int(seed),
        impressions=int(counts.impressions.sum()),
        clicks=int(counts.cells.clicks.sum()),
        lists=len(counts.data),
        queries=int(np.unique(counts.data.query_codes).size),
        longest=longest,
        empties_dropped=counts.empties_dropped,
        notes=(*notes, *about_noise, *notes_on_log(counts, met), *(examined.notes if met else ())),
        findings=findings_on(counts, examined.bias),
    )


def _longest(log: Counts, policies: Mapping[str, object]) -> int:
    """Return the last position whose examination counts: a policy may put an item anywhere in its list."""
    logged = int(log.cells.position.max(initial=1))
    return max(logged, int(log.data.lengths.max())) if policies else logged


@dataclass
class _Auditor:
    """Measures all rankings under a position bias, on draws of queries that are the same for everything."""

    log: Counts
    rankers: Mapping[str, Ranker]
    noise: ClickNoise | None
    max_disparity: float | None
    level: float
    resamples: int
    seed: int
    progress: Progress | None
    total: int = 0
    done: int = 0

    def rankings(
        self, bias: PositionBias, met: Sequence[int], others: Mapping[str, PositionBias]
    ) -> dict[str, RankingAudit]:
        """Return what is to be said of each ranking, under the bias and under others."""
        changed = [self._under(name, other) for name, other in others.items()]
        found = self._contributions(bias)
        logged = found[LOGGED]
        blocks: list[Array] = []
        for one in found.values():
            blocks += [one.utility, one.exposure, one.merit, one.pairs]
            blocks += [_apart(one.utility, logged.utility), _apart(one.pairs, logged.pairs)]
        drawn = self._resample(blocks)
        return {
            name: self._ranking(
                name, drawn[6 * number : 6 * number + 6], met, tuple(one[name] for one in changed)
            )
            for number, name in enumerate(found)
        }

    def _under(self, name: str, bias: PositionBias) -> dict[str, OtherBias]:
        """Return the disparity of each ranking under another position bias."""
        found = self._contributions(bias)
        outcome = {}
        for ranking, pairs in zip(found, self._resample([one.pairs for one in found.values()]), strict=True):
            disparity = self._disparity(pairs)
            outcome[ranking] = OtherBias(
                bias=name,
                disparities=tuple(pairs.estimate.tolist()),
                disparity=disparity.value,
                upper=disparity.high,
                passes=self._passes(disparity),
            )
        return outcome

    def _contributions(self, bias: PositionBias) -> dict[str, Contributions]:
        clicks = Clicks(self.log, bias, self.noise)
        found = {LOGGED: clicks.of_logged()}
        self._step()
        for name, ranker in self.rankers.items():
            found[name] = clicks.of_policy(ranker)
            self._step()
        return found

    def _step(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)

    def _resample(self, blocks: Sequence[Array]) -> list[Resampled]:
        """Resample columns of lists together, block by block; the same seed draws the same queries."""
        together = resampled_errors(
            np.hstack(blocks),
            self.log.impressions,
            self.log.data.query_codes,
            self.resamples,
            self.seed,
        )
        ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
        return [_columns(together, slice(ends[at], ends[at + 1])) for at in range(len(blocks))]

    def _ranking(
        self, name: str, drawn: Sequence[Resampled], met: Sequence[int], others: tuple[OtherBias, ...]
    ) -> RankingAudit:
        utility, exposure, merit, pairs, more_utility, more_pairs = drawn
        disparity = self._disparity(pairs)
        difference = None
        if name != LOGGED:
            difference = Difference(self._each(more_utility)[0], tuple(self._each(more_pairs)))
        return RankingAudit(
            name=name,
            utility=self._each(utility)[0],
            groups=self._groups(exposure, merit),
            pairs=self._pairs(pairs, met),
            disparity=disparity,
            passes=self._passes(disparity),
            difference=difference,
            other_biases=others,
        )

    def _each(self, drawn: Resampled) -> list[Estimate]:
        """Return estimates with intervals, each by itself."""
        found = []
        for column in range(drawn.estimate.size):
            one = _columns(drawn, slice(column, column + 1))
            low, high = simultaneous_intervals(one, level=self.level)
            found.append(Estimate(float(one.estimate[0]), float(low[0]), float(high[0])))
        return found

    def _disparity(self, pairs: Resampled) -> Estimate:
        """Return the root of the sum of squares, with bounds from the band of all pairs."""
        bounds = sum_of_squares_bounds(*simultaneous_intervals(pairs, level=self.level))
        return Estimate(float(np.sqrt(np.sum(pairs.estimate**2))), *(float(np.sqrt(end)) for end in bounds))

    def _passes(self, disparity: Estimate) -> bool | None:
        return None if self.max_disparity is None else disparity.high <= self.max_disparity

    def _pairs(self, drawn: Resampled, met: Sequence[int]) -> tuple[PairAudit, ...]:
        low, high = simultaneous_intervals(drawn, level=self.level)
        names, each = combinations(self.log.data.group_names, 2), self._each(drawn)
        return tuple(
            PairAudit(first, second, each[number], (float(low[number]), float(high[number])), met[number])
            for number, (first, second) in enumerate(names)
        )

    def _groups(self, exposure: Resampled, merit: Resampled) -> tuple[GroupAudit, ...]:
        data = self.log.data
        items = np.bincount(data.group[data.group >= 0], minlength=len(data.group_names))
        # merit over exposure has a denominator that does not vanish; turned over, it is what is asked for
        worth = self._ratios(merit, exposure)
        exposed = self._ratios(exposure, _total(exposure))
        deserved = self._ratios(merit, _total(merit))
        return tuple(
            GroupAudit(name, int(items[number]), *estimates)
            for number, (name, *estimates) in enumerate(
                zip(
                    data.group_names,
                    self._each(exposure),
                    self._each(merit),
                    [_turned_over(one) for one in worth],
                    exposed,
                    deserved,
                    strict=True,
                )
            )
        )

    def _ratios(self, numerator: Resampled, denominator: Resampled) -> list[Estimate]:
        """Return ratios of means with percentile intervals; NaN where the denominator is not above 0."""
        estimate = _ratio(numerator.estimate, denominator.estimate)
        low, high = percentile_interval(_ratio(numerator.means, denominator.means), self.level)
        ends = (np.where(np.isnan(estimate), np.nan, end) for end in (low, high))
        return [Estimate(*map(float, row)) for row in zip(estimate, *ends, strict=True)]


def _apart(values: Array, others: Array) -> Array:
    """Return the difference, and 0 where it is but rounding: rankings that are the same do not differ."""
    apart = values - others
    return np.asarray(np.where(np.abs(apart) > ROUNDING * (np.abs(values) + np.abs(others)), apart, 0.0))


def _columns(drawn: Resampled, chosen: slice) -> Resampled:
    return Resampled(
        drawn.estimate[chosen], drawn.error[chosen], drawn.means[:, chosen], drawn.errors[:, chosen]
    )


def _total(drawn: Resampled) -> Resampled:
    """Return means of all groups together, without errors."""
    estimate, means = drawn.estimate.sum(keepdims=True), drawn.means.sum(axis=1, keepdims=True)
    return Resampled(estimate, np.zeros_like(estimate), means, np.zeros_like(means))


def _ratio(numerator: Array, denominator: Array) -> Array:
    known = denominator > 0
    return np.asarray(np.where(known, numerator / np.where(known, denominator, 1.0), np.nan))


def _turned_over(of: Estimate) -> Estimate:
    """Return 1 / x: NaN where x is not above 0, and with no upper end where x may be 0."""
    value, low, high = (
        1 / one if one > 0 else missing
        for one, missing in ((of.value, np.nan), (of.high, np.nan), (of.low, np.inf))
    )
    # nothing is known of the ends of what is not defined
    return Estimate(value, low, high) if of.value > 0 else Estimate(np.nan, np.nan, np.nan)
