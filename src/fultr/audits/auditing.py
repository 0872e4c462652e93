"""Auditing: logged rankings and candidate policies measured from clicks on the same draws of queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np

from fultr.arguments import Progress, whole_number
from fultr.audits.checks import (
    check_limit,
    counted,
    findings_on,
    named_policies,
    noise_to_take_off,
    notes_on_log,
    notes_on_training,
    overlaps_with_training,
)
from fultr.audits.curves import examination_for
from fultr.audits.measuring import Measuring
from fultr.audits.pairs import queries_of_pairs
from fultr.audits.result import Audit
from fultr.click_model import ClickNoise
from fultr.clicks import BiasEstimate
from fultr.clicks.examination import AnyBias, with_examination
from fultr.data import Counts
from fultr.evaluation.bootstrap import checked_level
from fultr.evaluation.inputs import ScoringPolicy, ranker_of

LEAST_RESAMPLES = 50


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
    >>> bias = fultr.PositionBias.power(1.0)
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
    met = queries_of_pairs(counts)
    check_limit(max_disparity, counts, met)
    longest = _longest(counts, named)
    counts, curve = with_examination(counts, position_bias)
    overlaps = overlaps_with_training(named, as_counted, counts.data)
    examined = examination_for(
        position_bias if isinstance(position_bias, BiasEstimate) else curve, counts, named, longest, depth
    )
    rankers = {name: ranker_of(policy, counts.data, stochastic, "double") for name, policy in named.items()}
    others = examined.others if met.size else {}
    work = Measuring(
        log=counts,
        rankers=rankers,
        overlaps=overlaps,
        noise=taken_off,
        max_disparity=max_disparity,
        level=level,
        resamples=resamples,
        seed=seed,
        top_k=top_k,
        report=_step_reporter(progress, (1 + len(others)) * (1 + len(rankers))),
    )
    rankings = work.rankings(examined.bias, others, met)
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
            *(examined.notes if met.size else ()),
        ),
        findings=findings_on(counts, examined.bias),
    )


def _longest(log: Counts, policies: Mapping[str, object]) -> int:
    """Return the last position whose examination counts: a policy may put an item anywhere on the page."""
    if not policies or log.hides_candidates:
        return max(log.deepest, 1)
    return max(log.deepest, int(log.data.lengths.max()))


def _step_reporter(progress: Progress | None, total: int) -> Callable[[], None]:
    """Return what is called after each of `total` steps."""
    done = count(1)
    return lambda: None if progress is None else progress(next(done), total)
