"""The watch over events: exposure, merit and disparity of groups, drift, and alarms that are right.

A window is all days from a start to now. Its intervals hold at all times at once (`confidence_radius`), and
the windows of all starts share the level (`alpha_of_start`), and so do the three kinds of alarms: disparity,
features and position bias (`alpha_of_kind`). So all alarms that are ever raised, over all windows and however
often one looks, are right together with the level that was asked for; the position bias may be looked at
once a day.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fultr.click_model import PositionBias
from fultr.errors import InputError
from fultr.serving.confidence import alpha_of_start, confidence_radius
from fultr.serving.light_policy import LightPolicy
from fultr.serving.moments import SHARE_UNKNOWN, DaySums, Moments, disparity_of, exposure_of, merit_of

if TYPE_CHECKING:
    from fultr.serving.metrics import Metrics
    from fultr.serving.policies import ServedPolicies
    from fultr.serving.settings import ServiceSettings

LEVEL = 0.95

LEAST_IMPRESSIONS = 500
"""Windows with fewer impressions raise no alarm: their intervals are those of large numbers."""

KINDS_OF_ALARMS = 3
"""Disparity, features, position bias."""

SHOWN_DAYS = (1, 7, 28)
"""Lengths of the windows that are shown, in days; all days besides."""

LEAST_QUERIES = 30
"""With fewer queries the standard errors of a position bias, which are those over queries, say too little."""

DRIFT = 0.5
"""How far, in standard deviations, the mean of a feature may go before it is called another one."""


class WatchedInterval(NamedTuple):
    """An estimate, and the bounds that hold at all times."""

    value: float
    low: float
    high: float

    def to_list(self) -> list[float | None]:
        """Return plain values; a bound that is not known is None."""
        return [one if math.isfinite(one) else None for one in self]


class Reference(NamedTuple):
    """The mean and the standard deviation that a feature had, and how far that mean may be off."""

    mean: float
    deviation: float
    radius: float = 0.0


@dataclass(frozen=True)
class Window:
    """What was shown from a day on."""

    start: date
    days: int
    impressions: int
    exposure: Mapping[str, WatchedInterval]
    merit: Mapping[str, WatchedInterval]
    exposure_per_merit: Mapping[str, WatchedInterval]
    disparity: Mapping[str, WatchedInterval]
    root: WatchedInterval
    unknown: WatchedInterval

    @property
    def title(self) -> str:
        """How long it is, and how much it holds."""
        days = "1 day" if self.days == 1 else f"{self.days} days"
        return f"{days}, from {self.start}: {self.impressions:,} impressions"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        groups = {
            name: {
                "exposure": self.exposure[name].to_list(),
                "merit": self.merit[name].to_list(),
                "exposure_per_merit": self.exposure_per_merit[name].to_list(),
            }
            for name in self.exposure
        }
        return {
            "start": self.start.isoformat(),
            "days": self.days,
            "impressions": self.impressions,
            "groups": groups,
            "disparity": {name: one.to_list() for name, one in self.disparity.items()},
            "root_of_squared_disparity": self.root.to_list(),
            "unknown_groups": self.unknown.to_list(),
        }


@dataclass(frozen=True)
class Watched:
    """What the watch found, with an alarm in a sentence for each thing that is certainly wrong."""

    windows: Sequence[Window] = ()
    history: Sequence[Window] = ()
    drift: Mapping[str, WatchedInterval] = field(default_factory=dict)
    alarms: Sequence[str] = ()
    notes: Sequence[str] = ()
    max_disparity: float | None = None
    level: float = LEVEL

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "level": self.level,
            "max_disparity": self.max_disparity,
            "alarms": list(self.alarms),
            "notes": list(self.notes),
            "windows": [window.to_dict() for window in self.windows],
            "feature_drift": {name: one.to_list() for name, one in self.drift.items()},
        }


def watch(
    days: Mapping[date, DaySums],
    groups: Sequence[str],
    *,
    max_disparity: float | None = None,
    level: float = LEVEL,
    references: Mapping[str, Reference] | None = None,
    began: date | None = None,
) -> Watched:
    """Judge what was shown.

    Parameters
    ----------
    days
        The sums of each day; the first one is day 1, for which days are counted.
    groups
        The groups.
    max_disparity
        The limit of the root of the sum of squared disparities; without it there is no alarm of disparity.
    level
        The probability that no alarm of any kind is ever wrong; each kind has a third of what is left.
    references
        What features were like in the training; by default the first day is compared with.
    began
        Day 1, from which days are counted; by default the first one.
    """
    if not days:
        raise InputError("no ranking was shown yet")
    alpha, order = alpha_of_kind(level), sorted(days)
    first = min(began or order[0], order[0])
    pairs = [disparity_of(one, other) for at, one in enumerate(groups) for other in groups[at + 1 :]]
    totals, running = {}, DaySums()
    for day in reversed(order):
        running = running + days[day]
        totals[day] = running
    windows: dict[date, Window] = {}
    alarms: list[str] = []
    for day in order:
        own = alpha_of_start(alpha, _number(first, day))
        window = _window(totals[day].measures, day, (order[-1] - day).days + 1, groups, pairs, own)
        windows[day] = window
        if max_disparity is not None and window.root.low > max_disparity and _is_large(window):
            alarms.append(
                f"disparity is above {max_disparity:g}: from {window.start} on it is {window.root.value:.3g},"
                f" and at least {window.root.low:.3g}"
            )
    drift, drift_alarms = _drift(totals, order, first, references, alpha)
    shown = {order[0], *(day for day in order if windows[day].days in SHOWN_DAYS)}
    return Watched(
        [windows[day] for day in sorted(shown, reverse=True)],
        [windows[day] for day in order],
        drift,
        [*alarms[:1], *drift_alarms],
        max_disparity=max_disparity,
        level=level,
    )


def alpha_of_kind(level: float) -> float:
    r"""Return the share of one kind of alarms, $\alpha = (1 - level) / 3$."""
    return (1 - level) / KINDS_OF_ALARMS


def _number(first: date, day: date) -> int:
    return (day - first).days + 1


def _is_large(window: Window) -> bool:
    return window.impressions >= LEAST_IMPRESSIONS


def _interval(moments: Moments, name: str, alpha: float) -> WatchedInterval:
    mean = moments.mean(name)
    radius = confidence_radius(moments.observations(name), moments.deviation(name), alpha)
    return WatchedInterval(mean, mean - radius, mean + radius)


def _window(
    moments: Moments, start: date, days: int, groups: Sequence[str], pairs: Sequence[str], alpha: float
) -> Window:
    # the interval of each group and measure is right by itself; those of pairs are right together
    exposure = {name: _at_least_0(_interval(moments, exposure_of(name), alpha)) for name in groups}
    merit = {name: _at_least_0(_interval(moments, merit_of(name), alpha)) for name in groups}
    disparity = {name: _interval(moments, name, alpha / max(len(pairs), 1)) for name in pairs}
    return Window(
        start,
        days,
        moments.number,
        exposure,
        merit,
        {name: _ratio(exposure[name], merit[name]) for name in groups},
        {name.removeprefix("disparity "): one for name, one in disparity.items()},
        _root(list(disparity.values())),
        _at_least_0(_interval(moments, SHARE_UNKNOWN, alpha)),
    )


def _at_least_0(interval: WatchedInterval) -> WatchedInterval:
    return interval._replace(low=max(interval.low, 0.0))


def _ratio(exposure: WatchedInterval, merit: WatchedInterval) -> WatchedInterval:
    """Return exposure per merit; its bounds hold where those of both hold."""

    def divided(one: float, other: float) -> float:
        return one / other if other > 0 and math.isfinite(other) else (0.0 if other > 0 else math.inf)

    return WatchedInterval(
        divided(exposure.value, merit.value),
        divided(exposure.low, merit.high),
        divided(exposure.high, merit.low),
    )


def _root(pairs: Sequence[WatchedInterval]) -> WatchedInterval:
    """Return the root of the sum of squares; its bounds hold where those of all pairs hold."""
    nearest = [max(one.low, -one.high, 0.0) for one in pairs]
    farthest = [max(abs(one.low), abs(one.high)) for one in pairs]
    return WatchedInterval(
        math.sqrt(sum(one.value**2 for one in pairs)),
        math.sqrt(sum(one**2 for one in nearest)),
        math.sqrt(sum(one**2 for one in farthest)),
    )


def _drift(
    totals: Mapping[date, DaySums],
    order: Sequence[date],
    begin: date,
    references: Mapping[str, Reference] | None,
    alpha: float,
) -> tuple[dict[str, WatchedInterval], list[str]]:
    """Return how far the means of features of the last week went, in deviations; and alarms."""
    first = totals[order[0]].features
    names = list(first.total)
    if references is None:
        # the first day says what features are like, as well as it can, and half of the level is for that
        alone = first if len(order) == 1 else first - totals[order[1]].features
        own = alpha / 2 / max(len(names), 1)
        references = {
            name: Reference(
                alone.mean(name),
                alone.deviation(name),
                confidence_radius(alone.observations(name), alone.deviation(name), own),
            )
            for name in names
        }
        alpha, order = alpha / 2, order[1:]
    drift: dict[str, WatchedInterval] = {}
    alarms: list[str] = []
    for day in order:
        moments = totals[day].features
        own = alpha_of_start(alpha, _number(begin, day)) / max(len(names), 1)
        for name in names:
            reference = references.get(name)
            if reference is None or reference.deviation <= 0:
                continue
            if moments.observations(name) < LEAST_IMPRESSIONS:
                continue
            found = _interval(moments, name, own)
            low, value, high = (one - reference.mean for one in (found.low, found.value, found.high))
            scaled = WatchedInterval(
                value / reference.deviation,
                (low - reference.radius) / reference.deviation,
                (high + reference.radius) / reference.deviation,
            )
            is_recent = (order[-1] - day).days < SHOWN_DAYS[1]
            if is_recent and name not in drift:
                drift[name] = scaled
            if max(scaled.low, -scaled.high) > DRIFT and not any(f"'{name}'" in one for one in alarms):
                alarms.append(
                    f"feature '{name}' has moved: from {day} on its mean is {scaled.value:+.2f} standard"
                    f" deviations away, at least {max(scaled.low, -scaled.high):.2f}"
                )
    return drift, alarms


def bias_of(policy: LightPolicy, eta: float | None) -> PositionBias:
    """Return the position bias to watch with: the one asked for, or that of the training."""
    if eta is not None:
        return PositionBias.power(eta)
    content = policy.content.get("position_bias")
    if not isinstance(content, dict) or "values" not in content:
        problem = "the policy does not say which position bias it was trained with; give {eta}"
        raise InputError(problem, column="position_bias", options=["eta"])
    return PositionBias.from_dict(content)


def references_of(policy: LightPolicy) -> dict[str, Reference] | None:
    """Return what features were like in the training; None if the policy does not scale them."""
    scaling = policy.scaling
    if scaling is None or policy.encoding is not None or not scaling.mean.any():
        return None
    pairs = zip(scaling.mean.tolist(), scaling.scale.tolist(), strict=True)
    return {name: Reference(*pair) for name, pair in zip(policy.feature_names, pairs, strict=True)}


def monitor(
    events: str | Path,
    policy: LightPolicy,
    *,
    max_disparity: float | None = None,
    eta: float | None = None,
    level: float = LEVEL,
    began: date | None = None,
) -> Watched:
    """Read events, and judge what was shown.

    Parameters
    ----------
    events
        The folder or the database of events.
    policy
        The policy at work: it says the groups, the position bias, and what features were like.
    max_disparity, level
        See `watch`.
    eta
        Another position bias, v_k = (1 / k)^eta.
    began
        The day on which the watch began; by default that of the first event. Where old events are removed,
        say it: the level is shared by all days since.
    """
    if not policy.group_names:
        raise InputError("the policy knows no groups, so that there is nothing to watch", column="groups")
    from fultr.serving.day_sums import sums_of_days

    bias = bias_of(policy, eta)
    sums = sums_of_days(events, bias, policy.group_names)
    found = watch(
        sums,
        policy.group_names,
        max_disparity=max_disparity,
        level=level,
        references=references_of(policy),
        began=began,
    )
    if not policy.stochastic:
        return found  # rankings that are not drawn say nothing of positions
    looks = _number(min(began or min(sums), min(sums)), max(sums))
    return replace(found, alarms=[*found.alarms, *position_bias_drift(events, bias, looks, level)])


SHARE_OF_TIME = 0.02
"""The service watches for at most this share of the time."""

DAY = 86_400_000_000


class Watch:
    """The watch of a running service.

    It reads the days again whose rankings may still get clicks, now and then, and older ones once; and all of
    them once a day for the position bias.
    """

    def __init__(self, settings: ServiceSettings, policies: ServedPolicies, clock: Callable[[], int]) -> None:
        self.settings, self.policies, self.clock = settings, policies, clock
        self.days: dict[date, DaySums] = {}
        self.measured_with: tuple[Any, ...] = ()
        self.bias_day: int | None = None
        self.bias_alarms: list[str] = []
        self.began: date | None = None
        self.seconds = settings.watch_seconds
        self.found: Watched | None = None

    def refresh(self, metrics: Metrics) -> None:
        """Read new events, judge them, and set the gauges."""
        from fultr.serving.day_sums import sums_of_days  # with polars, which a service need not wait for

        policy = self.policies.shown[0].policy
        if not policy.group_names:
            return
        start, now = time.monotonic(), self.clock()
        bias = bias_of(policy, self.settings.eta)
        self._measure_with(policy, bias)
        # clicks of the days before may still come
        late = 1 + math.ceil(self.settings.accept_clicks / 24)
        since = now - now % DAY - late * DAY if self.days else 0
        self.days |= sums_of_days(self.settings.events, bias, policy.group_names, since)
        found = watch(
            self.days,
            policy.group_names,
            max_disparity=self.settings.max_disparity,
            references=references_of(policy),
            began=self.began,
        )
        self.began = min(self.began or min(self.days), min(self.days))
        if policy.stochastic and self.bias_day != now // DAY:
            looks = _number(self.began, max(self.days))
            self.bias_alarms = position_bias_drift(self.settings.events, bias, looks)
            self.bias_day = now // DAY
        self.found = replace(found, alarms=[*found.alarms, *self.bias_alarms])
        _set_gauges(metrics, self.found)
        metrics.watched.set(now / 1e6)
        self.seconds = max(self.settings.watch_seconds, (time.monotonic() - start) / SHARE_OF_TIME)

    def _measure_with(self, policy: LightPolicy, bias: PositionBias) -> None:
        """Measure all days again, if a replaced policy has other groups or another position bias."""
        measured_with = (policy.group_names, tuple(bias.values), bias.beyond)
        if measured_with != self.measured_with:
            self.days, self.bias_alarms = {}, []
        self.measured_with = measured_with

    def failed(self, problem: str) -> None:
        """Keep what was found last, and say beside it that it is not up to date."""
        self.found = replace(self.found or Watched(), notes=[f"Events cannot be watched: {problem}"])

    def for_page(self) -> tuple[Watched, int]:
        """Return what was found last, and after how many seconds there may be more."""
        found = self.found or Watched(notes=["Nothing was read yet."])
        return found, math.ceil(self.settings.watch_seconds)


def _set_gauges(metrics: Metrics, found: Watched) -> None:
    newest = min(found.windows, key=lambda window: abs(window.days - SHOWN_DAYS[1]))
    for pair, interval in newest.disparity.items():
        for bound, value in zip(("value", "low", "high"), interval, strict=True):
            metrics.disparity.labels(pair, bound).set(value)
    for gauge, values in ((metrics.exposure, newest.exposure), (metrics.merit, newest.merit)):
        total = sum(one.value for one in values.values())
        for name, one in values.items():
            gauge.labels(name).set(one.value / total if total else math.nan)
    metrics.alarms.set(len(found.alarms))


def position_bias_drift(
    events: str | Path, bias: PositionBias, looks: int, level: float = LEVEL
) -> list[str]:
    """Estimate the position bias from events, and say where it is certainly another one.

    Rankings that are drawn put the same item at several positions, which shows how much the position matters
    (`fultr.clicks.estimate_bias_harvest`). The order of a request, which is shown if the policy fails, is not
    drawn and left out. The share of this kind (`alpha_of_kind`) is shared by positions, and by the days on
    which one looks (`alpha_of_start`), of which this is number `looks`, so that all alarms are right together
    if one looks once a day.
    """
    from scipy import stats

    from fultr.clicks import estimate_bias
    from fultr.logs import count
    from fultr.logs.events import event_tables

    try:
        tables = event_tables(events, with_fallback=False)
        counts = count(tables, features=[], on_conflict="last")
        found = estimate_bias(counts, "harvest", randomised=True, shape="free")
    except InputError:
        return []  # too few clicks to say anything
    if found.queries < LEAST_QUERIES:
        return []
    values = bias.curve(len(found.values))[1:]
    alarms = []
    for position in range(2, len(found.values) + 1):
        value, error = found.values[position - 1], found.standard_error[position - 1]
        alpha = alpha_of_start(alpha_of_kind(level), looks) / max(len(found.values) - 1, 1)
        radius = float(stats.t.isf(alpha / 2, found.queries - 1)) * error
        if position not in found.insufficient and error > 0 and abs(value - values[position - 1]) > radius:
            alarms.append(
                f"the position bias has moved: position {position} is looked at {value:.3f} times as often as"
                f" the first, [{value - radius:.3f}, {value + radius:.3f}], not {values[position - 1]:.3f}"
            )
    return alarms
