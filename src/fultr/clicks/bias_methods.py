"""Which methods a log supports, any of them by name, one curve for each context, and their comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from fultr.clicks.bias_cells import NO_SINGLE_IMPRESSIONS, counts_of_rankers, item_cells, labels_of
from fultr.clicks.bias_em import Relevance, estimate_bias_em
from fultr.clicks.bias_estimate import METHODS, BiasEstimate, Method
from fultr.clicks.bias_harvest import estimate_bias_harvest
from fultr.clicks.bias_pairs import pairs_of
from fultr.clicks.bias_resampling import BiasOptions, Blocks, settings_of
from fultr.clicks.bias_swap import estimate_bias_swap
from fultr.data import ClickLog, Counts
from fultr.data.ids import distinct
from fultr.errors import InputError


class MethodInputs(BiasOptions, total=False):
    """What the methods take beside the log: `BiasOptions`, and what each of them needs of it.

    Parameters
    ----------
    swap_rank, swapped
        See `estimate_bias_swap`.
    ranker, randomised
        See `estimate_bias_harvest`.
    relevance
        See `estimate_bias_em`.
    """

    swap_rank: ArrayLike | None
    swapped: ArrayLike | None
    ranker: ArrayLike | None
    randomised: bool
    relevance: Relevance


INPUTS_OF: dict[Method, tuple[str, ...]] = {
    "swap": ("swap_rank", "swapped"),
    "harvest": ("ranker", "randomised"),
    "em": ("relevance",),
}
OF_IMPRESSIONS = ("swap_rank", "swapped", "ranker")


@overload
def estimate_bias(
    log: ClickLog | Counts,
    method: Method | Literal["auto"] = "auto",
    *,
    context: None = None,
    **inputs: Unpack[MethodInputs],
) -> BiasEstimate: ...


@overload
def estimate_bias(
    log: ClickLog | Counts,
    method: Method | Literal["auto"] = "auto",
    *,
    context: Mapping[str, ArrayLike] | str,
    **inputs: Unpack[MethodInputs],
) -> dict[str, BiasEstimate]: ...


def estimate_bias(
    log: ClickLog | Counts,
    method: Method | Literal["auto"] = "auto",
    *,
    context: Mapping[str, ArrayLike] | str | None = None,
    **inputs: Unpack[MethodInputs],
) -> BiasEstimate | dict[str, BiasEstimate]:
    """Estimate the position bias of a log, or one for each context.

    Parameters
    ----------
    log
        The log, empty impressions kept.
    method
        "swap", "harvest" or "em"; by default the first of them that the log supports.
    context
        A name and a value for each impression, such as ``{"device": [...]}``; or, of counts made with
        ``context="device"``, that name. Each value gets a curve of its own, from its impressions alone, and
        they are returned by value.
    **inputs
        See `MethodInputs`. What a method does not use is left aside.

    Examples
    --------
    >>> from fultr import PositionBias, RandomRanking, datasets, simulate_clicks
    >>> data = datasets.synthetic(queries=100, list_length=4, features=2, relevant=2).train
    >>> log = simulate_clicks(data, RandomRanking(), PositionBias.power(1.0), impressions=20_000)
    >>> estimate_bias(log, "harvest", randomised=True).method
    'harvest'
    >>> device = ["phone", "desk"] * 10_000
    >>> sorted(estimate_bias(log, "harvest", randomised=True, context={"device": device}))
    ['desk', 'phone']
    """
    given = _checked(dict(inputs))
    if context is None:
        return _MethodChoice(log, given).estimate(method)
    estimates = {}
    for name, label, impressions, own in _parts(log, context, given):
        try:
            estimate = _MethodChoice(impressions, own).estimate(method)
        except InputError as error:
            raise InputError(f"with {name} {label}: {error.problem}", column=error.column) from None
        estimates[label] = replace(estimate, context=(name, label))
    return estimates


def _parts(
    log: ClickLog | Counts, context: Mapping[str, ArrayLike] | str, given: dict[str, Any]
) -> Iterator[tuple[str, str, ClickLog | Counts, dict[str, Any]]]:
    """Yield the name of a context, a value of it, the part of the log that has it, and its inputs."""
    if isinstance(log, Counts):
        if log.context is None or context != log.context_name:
            raise InputError(NO_SINGLE_IMPRESSIONS, column="context")
        for value in log.context_values:
            yield log.context_name, value, log.of_context(value), given
        return
    if not isinstance(context, Mapping) or len(context) != 1:
        problem = "must be a name with one value for each impression, such as {'device': [...]}"
        raise InputError(problem, column="context", value=context)
    ((name, values),) = context.items()
    labels = labels_of(values, len(log), name)
    for label in distinct(labels):
        chosen = np.flatnonzero(labels == label)
        own = {key: _of(value, chosen) if key in OF_IMPRESSIONS else value for key, value in given.items()}
        yield str(name), str(label), log[chosen], own


def supported_methods(
    log: ClickLog | Counts, *, swap_rank: ArrayLike | None = None, ranker: ArrayLike | None = None
) -> tuple[Method, ...]:
    """Return the methods that a log supports, those that rest on less first.

    "swap" needs to know the swaps, "harvest" documents at several positions (given by different rankers, if
    these are named), and "em" documents at several positions for whatever reason.
    """
    return _MethodChoice(log, {"swap_rank": swap_rank, "ranker": ranker}).supported


@dataclass(frozen=True)
class BiasComparison:
    """Estimates of one log by several methods, and where they cannot all be right.

    Attributes
    ----------
    estimates
        By method.
    refused
        Why a method that seemed possible was not, by method.
    disagreements
        Positions, and two methods whose intervals there have nothing in common.
    """

    estimates: dict[str, BiasEstimate]
    refused: dict[str, str]
    disagreements: tuple[tuple[int, str, str], ...]

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each position: value, low and high by method, and whether methods disagree."""
        deepest = max((len(estimate.values) for estimate in self.estimates.values()), default=0)
        disputed = {position for position, _, _ in self.disagreements}
        rows = []
        for position in range(1, deepest + 1):
            row: dict[str, Any] = {"position": position, "disagree": position in disputed}
            for method, estimate in self.estimates.items():
                at = position - 1
                if at < len(estimate.values) and position not in estimate.insufficient:
                    row[method] = {
                        "value": estimate.values[at],
                        "low": estimate.low[at],
                        "high": estimate.high[at],
                    }
                else:
                    row[method] = None
            rows.append(row)
        return rows


def compare_biases(log: ClickLog | Counts, **inputs: Unpack[MethodInputs]) -> BiasComparison:
    """Estimate the position bias by every method that the log supports, and say where they disagree.

    Methods disagree at a position where their intervals do not meet. Intervals of the same clicks are not
    independent, so that methods may differ in truth without disagreeing here.
    """
    inputs_of_log = _MethodChoice(log, _checked(dict(inputs)))
    estimates: dict[str, BiasEstimate] = {}
    refused: dict[str, str] = {}
    if not inputs_of_log.supported:
        raise InputError(
            "the log supports no method: swaps are not named, and no document was shown at position 1 and"
            " another"
        )
    for method in inputs_of_log.supported:
        try:
            estimates[method] = inputs_of_log.estimate(method)
        except InputError as error:
            refused[method] = str(error)
    disagreements = [
        (position, one, other)
        for one, other in combinations(estimates, 2)
        for position in _apart(estimates[one], estimates[other])
    ]
    return BiasComparison(estimates, refused, tuple(sorted(disagreements)))


def _apart(one: BiasEstimate, other: BiasEstimate) -> list[int]:
    """Return the positions at which two intervals do not meet; unknown ones always do."""
    shared = min(len(one.values), len(other.values))
    return [at + 1 for at in range(shared) if one.low[at] > other.high[at] or other.low[at] > one.high[at]]


@dataclass(frozen=True, eq=False)
class _MethodChoice:
    """A log with its `MethodInputs`; it is counted once, however many methods are run."""

    log: ClickLog | Counts
    given: dict[str, Any]

    @cached_property
    def counts(self) -> Counts:
        return counts_of_rankers(self.log, self.given.get("ranker"))

    @cached_property
    def supported(self) -> tuple[Method, ...]:
        by_ranker = self.given.get("ranker") is not None
        cells = item_cells(self.counts, settings_of({}).longest, by_ranker=by_ranker)
        one_block = Blocks(np.zeros(cells.row.size, dtype=np.int64), 1, 1)
        positions = int(cells.position.max(initial=-1)) + 1

        def compares_first(between_rankers: bool) -> bool:
            pairs = pairs_of(cells, one_block, positions, between_rankers=between_rankers)
            return bool(pairs.documents[:1].any())

        swaps = self.given.get("swap_rank") is not None and not isinstance(self.log, Counts)
        is_supported = {"swap": swaps, "harvest": compares_first(by_ranker), "em": compares_first(False)}
        return tuple(method for method in METHODS if is_supported[method])

    def estimate(self, method: Method | Literal["auto"]) -> BiasEstimate:
        if method == "auto":
            method = self.supported[0] if self.supported else "em"
        if method not in METHODS:
            problem = f"must be one of: auto, {', '.join(METHODS)}"
            raise InputError(problem, column="method", value=method)
        given = self.given
        options: Any = {key: value for key, value in given.items() if key in BiasOptions.__annotations__}
        own = {key: given[key] for key in INPUTS_OF[method] if given.get(key) is not None}
        if method == "harvest":
            if "ranker" in own:
                own["ranker"] = self.counts.context_name
            return estimate_bias_harvest(self.counts, **own, **options)
        if method == "em":
            return estimate_bias_em(self.counts, **own, **options)
        if isinstance(self.log, Counts):
            raise InputError(NO_SINGLE_IMPRESSIONS, column="swap_rank")
        if "swap_rank" not in own:
            problem = "swap interventions need the position swapped with the first, for each impression"
            raise InputError(problem, column="swap_rank")
        return estimate_bias_swap(self.log, **own, **options)


def _checked(inputs: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(inputs) - set(MethodInputs.__annotations__))
    if unknown:
        problem = f"unknown argument; there are: {', '.join(MethodInputs.__annotations__)}"
        raise InputError(problem, value=unknown[0])
    return inputs


def _of(values: ArrayLike | None, chosen: Any) -> Any:
    return None if values is None else np.asarray(values)[chosen]
