"""Auditing: logged rankings and candidate policies measured from clicks on the same draws of queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress, whole_number
from fultr.audits.checks import (
    check_groups,
    check_limit,
    counted,
    findings_on,
    named_policies,
    new_lists,
    noise_to_take_off,
    notes_on_log,
    notes_on_training,
    overlaps_with_training,
    queries_of_pairs,
)
from fultr.audits.contributions import Clicks, RankingContributions
from fultr.audits.curves import examination_for
from fultr.audits.result import (
    LOGGED,
    Audit,
    AuditEstimate,
    Difference,
    GroupAudit,
    NewQueries,
    OtherBias,
    PairAudit,
    RankingAudit,
)
from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks import BiasEstimate
from fultr.clicks.examination import AnyBias, with_examination
from fultr.data import Counts
from fultr.evaluation import (
    Resampled,
    percentile_interval,
    resampled_errors,
    separate_intervals,
    simultaneous_intervals,
    sum_of_squares_bounds,
)
from fultr.evaluation.bootstrap import checked_level
from fultr.evaluation.contributions import Ranker
from fultr.evaluation.evaluate_policy import (
    NO_MERIT,
    exposure_ratio_bounds,
    exposure_ratios,
    exposure_to_move,
    exposure_to_move_bounds,
)
from fultr.evaluation.inputs import ScoringPolicy, ranker_of
from fultr.training.overlap import Overlap, recurring_queries

Array = NDArray[np.float64]

LEAST_RESAMPLES = 50

PAIRS = ("pairs", "low", "high")
"""The fields of contributions that say something of pairs of groups."""

ROUNDING = 1e-12
"""What two numbers differ by, relative to their size, if they differ by rounding only."""


def audit(
    log: Any,
    policies: Mapping[str, ScoringPolicy] | None = None,
    *,
    position_bias: AnyBias | None = None,
    noise: ClickNoise | None = None,
    max_disparity: float | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    stochastic: bool | None = None,
    top_k: int | None = None,
    depth: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Measure how fair and how useful the logged ranking and candidate policies are, from clicks alone.

    Parameters
    ----------
    log
        A `ClickLog`, a `Counts` or a frame of a log: clicks that no policy was trained on. Where queries of
        the training recur, the result on new queries is given apart.
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
    stochastic
        Measure policies as ones that draw rankings, or as ones that do not, whatever they are themselves.
    top_k
        Positions beyond the first so many have no utility, as in training; exposure is as the position bias
        says.
    depth
        How many positions a page has; nobody looks beyond them. By default as many as anything was shown at,
        if lists are longer.
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
    named = named_policies({} if policies is None else policies)
    counts = counted(log, named)
    as_counted = counts
    taken_off, about_noise = noise_to_take_off(noise, counts)
    check_groups(counts)
    met = queries_of_pairs(counts)
    check_limit(max_disparity, counts, met)
    longest = _longest(counts, named)
    counts, curve = with_examination(counts, position_bias)
    overlaps = overlaps_with_training(named, as_counted, counts.data)
    examined = examination_for(
        position_bias if isinstance(position_bias, BiasEstimate) else curve, counts, named, longest, depth
    )
    rankers = {name: ranker_of(policy, counts.data, stochastic, "double") for name, policy in named.items()}
    work = _Auditor(
        counts, rankers, overlaps, taken_off, max_disparity, level, resamples, seed, top_k, progress
    )
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
        notes=(
            *notes_on_training(overlaps, counts),
            *about_noise,
            *notes_on_log(counts, met),
            *(examined.notes if met else ()),
        ),
        findings=findings_on(counts, examined.bias),
    )


def _longest(log: Counts, policies: Mapping[str, object]) -> int:
    """Return the last position whose examination counts: a policy may put an item anywhere on the page."""
    if not policies or log.hides_candidates:
        return max(log.deepest, 1)
    return max(log.deepest, int(log.data.lengths.max()))


@dataclass
class _Auditor:
    """Measures all rankings under a position bias, on draws of queries that are the same for everything."""

    log: Counts
    rankers: Mapping[str, Ranker]
    overlaps: Mapping[str, Overlap]
    noise: ClickNoise | None
    max_disparity: float | None
    level: float
    resamples: int
    seed: int
    top_k: int | None
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
        drawn = self._resample(
            {name: vars(one) | ({} if name == LOGGED else _more(one, logged)) for name, one in found.items()}
        )
        rankings = {
            name: self._ranking(name, drawn[name], met, tuple(one[name] for one in changed)) for name in found
        }
        for name, overlap in self.overlaps.items():
            rankings[name] = replace(
                rankings[name],
                recurring_queries=recurring_queries(overlap, self.log.data),
                new_queries=self._new_queries(new_lists(overlap, self.log), found[name], logged),
            )
        return rankings

    def _new_queries(
        self, lists: NDArray[np.int64] | None, policy: RankingContributions, logged: RankingContributions
    ) -> NewQueries | None:
        """Return what a policy does on lists of queries that its training never saw."""
        if lists is None:
            return None
        of_policy = {name: block[lists] for name, block in vars(policy).items()}
        of_policy |= {name: block[lists] for name, block in _more(policy, logged).items()}
        drawn = self._resample({"policy": of_policy}, lists)["policy"]
        disparity, log = self._disparity(drawn), self.log[lists]
        ratios = self._exposure_ratios(drawn)
        return NewQueries(
            queries=int(np.unique(log.data.query_codes).size),
            impressions=int(log.impressions.sum()),
            utility=self._each(drawn["utility"])[0],
            pairs=self._pairs(drawn, ratios, queries_of_pairs(log)),
            disparity=disparity,
            exposure_to_move=self._exposure_to_move(drawn),
            passes=self._passes(disparity),
            difference=Difference(
                self._each(drawn["more_utility"])[0], tuple(self._each(drawn["more_pairs"]))
            ),
        )

    def _under(self, name: str, bias: PositionBias) -> dict[str, OtherBias]:
        """Return the disparity of each ranking under another position bias."""
        found = self._contributions(bias)
        outcome = {}
        pairs_of = {name: {key: getattr(one, key) for key in PAIRS} for name, one in found.items()}
        for ranking, drawn in self._resample(pairs_of).items():
            pairs = drawn["pairs"]
            disparity = self._disparity(drawn)
            outcome[ranking] = OtherBias(
                bias=name,
                disparities=tuple(pairs.estimate.tolist()),
                disparity=disparity.value,
                upper=disparity.high,
                passes=self._passes(disparity),
            )
        return outcome

    def _contributions(self, bias: PositionBias) -> dict[str, RankingContributions]:
        clicks = Clicks(self.log, bias, self.noise, self.top_k)
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

    def _resample(
        self, of_rankings: Mapping[str, Mapping[str, Array]], lists: Any = slice(None)
    ) -> dict[str, dict[str, Resampled]]:
        """Resample columns of lists together, each array once; the same seed draws the same queries."""
        blocks = {id(block): block for named in of_rankings.values() for block in named.values()}
        together = resampled_errors(
            np.hstack(list(blocks.values())),
            self.log.impressions[lists],
            self.log.data.query_codes[lists],
            self.resamples,
            self.seed,
        )
        ends = np.cumsum([0, *(block.shape[1] for block in blocks.values())])
        drawn = {key: _columns(together, slice(*ends[at : at + 2])) for at, key in enumerate(blocks)}
        return {
            ranking: {name: drawn[id(block)] for name, block in named.items()}
            for ranking, named in of_rankings.items()
        }

    def _ranking(
        self, name: str, drawn: Mapping[str, Resampled], met: Sequence[int], others: tuple[OtherBias, ...]
    ) -> RankingAudit:
        exposure, merit, disparity = drawn["exposure"], drawn["merit"], self._disparity(drawn)
        difference = None
        if name != LOGGED:
            more = self._each(drawn["more_utility"])[0], tuple(self._each(drawn["more_pairs"]))
            difference = Difference(*more)
        return RankingAudit(
            name=name,
            utility=self._each(drawn["utility"])[0],
            groups=self._groups(exposure, merit),
            pairs=self._pairs(drawn, self._exposure_ratios(drawn), met),
            disparity=disparity,
            exposure_to_move=self._exposure_to_move(drawn),
            passes=self._passes(disparity),
            difference=difference,
            other_biases=others,
        )

    def _each(self, drawn: Resampled) -> list[AuditEstimate]:
        """Return estimates with intervals, each by itself."""
        ends = separate_intervals(drawn, self.level)
        return [AuditEstimate(*map(float, one)) for one in zip(drawn.estimate, *ends, strict=True)]

    def _band(self, drawn: Mapping[str, Resampled]) -> tuple[Array, Array]:
        """Return the band of all pairs: low ends of the least that they can be, high ends of the most."""
        return (
            simultaneous_intervals(drawn["low"], level=self.level)[0],
            simultaneous_intervals(drawn["high"], level=self.level)[1],
        )

    def _disparity(self, drawn: Mapping[str, Resampled]) -> AuditEstimate:
        """Return the root of the sum of squares, with bounds from the band of all pairs."""
        bounds = sum_of_squares_bounds(*self._band(drawn))
        value = float(np.sqrt(np.sum(drawn["pairs"].estimate ** 2)))
        return AuditEstimate(value, *(float(np.sqrt(end)) for end in bounds))

    def _passes(self, disparity: AuditEstimate) -> bool | None:
        return None if self.max_disparity is None else disparity.high <= self.max_disparity

    def _pairs(
        self, drawn: Mapping[str, Resampled], ratios: Sequence[AuditEstimate], met: Sequence[int]
    ) -> tuple[PairAudit, ...]:
        bands = zip(*(end.tolist() for end in self._band(drawn)), strict=True)
        ends = (drawn["pairs"].estimate.tolist(), self._each(drawn["low"]), self._each(drawn["high"]))
        each = [AuditEstimate(value, least.low, most.high) for value, least, most in zip(*ends, strict=True)]
        names = combinations(self.log.data.group_names, 2)
        return tuple(
            PairAudit(first, second, disparity, band, ratio, queries)
            for (first, second), disparity, band, ratio, queries in zip(
                names, each, bands, ratios, met, strict=True
            )
        )

    def _exposure_ratios(self, drawn: Mapping[str, Resampled]) -> list[AuditEstimate]:
        """Return R_ij for i < j."""
        first, second = np.triu_indices(drawn["merit"].estimate.size, k=1)
        value = exposure_ratios(drawn["exposure"].estimate, drawn["merit"].estimate)[first, second]
        low, high = self._ends(drawn, exposure_ratios, exposure_ratio_bounds)
        ends = low[first, second], high[first, second]
        return [AuditEstimate(*map(float, row)) for row in zip(value, *ends, strict=True)]

    def _exposure_to_move(self, drawn: Mapping[str, Resampled]) -> AuditEstimate:
        value = exposure_to_move(drawn["exposure"].estimate, drawn["merit"].estimate)
        low, high = self._ends(drawn, exposure_to_move, exposure_to_move_bounds)
        return AuditEstimate(float(value), float(low), float(high))

    def _ends(
        self,
        drawn: Mapping[str, Resampled],
        measure: Callable[..., Array],
        bounds: Callable[..., tuple[Array, Array]],
    ) -> tuple[Array, Array]:
        """Return the ends of an interval: of a measure, or where items were never seen of its bounds."""
        exposure, merit, unknown = (drawn[name].means for name in ("exposure", "merit", "unknown"))
        if not unknown.any():
            return percentile_interval(measure(exposure, merit), self.level)
        ends = bounds(exposure + drawn["unseen_exposure"].means, merit, unknown)
        low, high = (percentile_interval(end, self.level)[number] for number, end in enumerate(ends))
        return low, np.where(high < 1 / NO_MERIT, high, np.inf)

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

    def _ratios(self, numerator: Resampled, denominator: Resampled) -> list[AuditEstimate]:
        """Return ratios of means with percentile intervals; NaN where the denominator is not above 0."""
        estimate = _ratio(numerator.estimate, denominator.estimate)
        low, high = percentile_interval(_ratio(numerator.means, denominator.means), self.level)
        ends = (np.where(np.isnan(estimate), np.nan, end) for end in (low, high))
        return [AuditEstimate(*map(float, row)) for row in zip(estimate, *ends, strict=True)]


def _more(policy: RankingContributions, logged: RankingContributions) -> dict[str, Array]:
    """Return what a policy contributes more than the logged ranking."""
    return {
        "more_utility": _apart(policy.utility, logged.utility),
        "more_pairs": _apart(policy.pairs, logged.pairs),
    }


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


def _turned_over(of: AuditEstimate) -> AuditEstimate:
    """Return 1 / x: NaN where x is not above 0, and with no upper end where x may be 0."""
    value, low, high = (
        1 / one if one > 0 else missing
        for one, missing in ((of.value, np.nan), (of.high, np.nan), (of.low, np.inf))
    )
    # nothing is known of the ends of what is not defined
    return AuditEstimate(value, low, high) if of.value > 0 else AuditEstimate(np.nan, np.nan, np.nan)
