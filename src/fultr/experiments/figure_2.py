"""Figure 2: utility against disparity, FULTR and the methods it is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fultr.experiments.figures import Figure, Line, clicks_text, draw_trade_offs
from fultr.experiments.methods import METHODS
from fultr.experiments.results import LARGEST_LAMBDA, PARTS, Array, Plan, Results
from fultr.experiments.runs import Run
from fultr.experiments.statistics import TOWARDS_ZERO, estimate, ratio, slopes
from fultr.experiments.verdicts import (
    EffectFinding,
    Verdict,
    above_zero,
    below_zero,
    differs,
    inside,
    not_reduced,
)

BASELINES = (
    "group-blind",
    "fair-pg-rank",
    "fair-pg-rank-ips",
    "equity-of-attention",
    "equity-of-attention-true",
)
BEYOND = ("fairco", "exposure-lp")
"""Methods that the paper does not compare with, but that users know."""

PAPER = "fultr-paper"
BY_CONSTRUCTION = (
    "the generator of synthetic data makes the regression err by group: this holds by construction"
)


def clicks_of(plan: Plan) -> float:
    """Return clicks as a multiple of the training lists: 5K on German Credit, 12K on MSLR; few need more."""
    return 10.0 if plan.is_german or plan.quick else 1.0


def _methods(plan: Plan) -> tuple[str, ...]:
    return ("fultr", *(() if plan.is_german else ("fultr-mlp",)), *BASELINES, *BEYOND)


def _runs(plan: Plan) -> list[Run]:
    runs = plan.runs(_methods(plan), [clicks_of(plan)])
    by_the_paper = plan.split_numbers[: plan.paper_splits]
    return runs + [plan.run(PAPER, clicks_of(plan), split=split) for split in by_the_paper]


def _judge(results: Results) -> list[Verdict]:
    verdicts = []
    for part, queries in PARTS.items():
        for claim, statement, findings, note in (
            _group_blind(results, part),
            _falls_with_lambda(results, part),
            *([] if results.plan.is_german else [_network(results, part)]),
            _fair_pg_rank(results, part),
            _equity_of_attention(results, part),
        ):
            verdicts.append(Verdict(claim, statement, results.plan.title, queries, findings, note))
    verdicts.append(_regression(results))
    return verdicts


Claim = tuple[str, str, tuple[EffectFinding, ...], str]


def _squares(results: Results, part: str, method: str) -> Array:
    return results.table(f"{part}_disparity_squared", method, clicks_of(results.plan))


def _group_blind(results: Results, part: str) -> Claim:
    fair = _squares(results, part, "fultr")[:, -1]
    blind = _squares(results, part, "group-blind")[:, 0]
    effect = f"squared disparity, group-blind - FULTR at lambda {LARGEST_LAMBDA:g}"
    statement = "group-blind training leaves disparity well above that of FULTR at large lambda"
    return "F2a", statement, (above_zero(effect, estimate(blind - fair)),), ""


def _falls_with_lambda(results: Results, part: str) -> Claim:
    squares = _squares(results, part, "fultr")
    utilities = results.table(f"{part}_dcg", "fultr", clicks_of(results.plan))
    steps = np.arange(squares.shape[1])
    findings = (
        below_zero("change of squared disparity for each step of lambda", estimate(slopes(squares, steps))),
        inside(
            f"squared disparity at lambda {LARGEST_LAMBDA:g} / that at 0",
            ratio(squares[:, -1], squares[:, 0]),
            -np.inf,
            TOWARDS_ZERO,
        ),
        below_zero(
            "change of DCG from lambda 0 to the largest", estimate(utilities[:, -1] - utilities[:, 0])
        ),
    )
    return "F2b", "squared disparity falls towards zero as lambda grows, with a drop in DCG", findings, ""


def _network(results: Results, part: str) -> Claim:
    """Compare at half the disparity that the linear scorer has at lambda 0, or the least that both reach."""
    scorers = ("fultr", "fultr-mlp")
    roots = {method: np.sqrt(_squares(results, part, method)) for method in scorers}
    least = np.max([roots[method].min(axis=1) for method in scorers], axis=0)
    level = np.maximum(least, roots["fultr"][:, 0] / 2)
    linear, network = (
        utilities_at(level, roots[method], results.table(f"{part}_dcg", method, clicks_of(results.plan)))
        for method in scorers
    )
    effect = "DCG at half the disparity of lambda 0, FULTR-MLP - FULTR-Linear"
    statement = "FULTR-MLP has the better trade-off than FULTR-Linear"
    return "F2c", statement, (above_zero(effect, estimate(network - linear)),), ""


def utilities_at(levels: Array, roots: Array, utilities: Array) -> Array:
    """Return what is reached at a disparity in each split, between policies by linear interpolation.

    `roots` and `utilities` are splits x policies. A policy that is fairer and as useful counts for one that
    is not.
    """
    reached = []
    for level, root, utility in zip(levels, roots, utilities, strict=True):
        order = np.argsort(root)
        reached.append(np.interp(level, root[order], np.maximum.accumulate(utility[order])))
    return np.array(reached)


def _unfair(results: Results, part: str, method: str, title: str) -> list[EffectFinding]:
    """Compare the lowest disparity of a method that is to fail with FULTR's, and with where it starts."""
    clicks, first = clicks_of(results.plan), results.plan.trade_offs(method)[0]
    _, ours = results.lowest(part, "fultr", clicks)
    _, lowest = results.lowest(part, method, clicks)
    start = results.at(f"{part}_disparity_squared", method, clicks, first)
    effect = f"{title}: lowest squared disparity - that"
    return [
        above_zero(f"{effect} of FULTR", estimate(lowest - ours)),
        not_reduced(
            f"{effect} at {METHODS[method].knob} {first:g}", estimate(lowest - start), float(start.mean())
        ),
    ]


def _fair_pg_rank(results: Results, part: str) -> Claim:
    findings = [
        finding
        for method in ("fair-pg-rank", "fair-pg-rank-ips")
        for finding in _unfair(results, part, method, METHODS[method].title)
    ]
    return "F2d", "Fair-PG-Rank, with IPS or not, does not reduce amortized disparity", tuple(findings), ""


def _equity_of_attention(results: Results, part: str) -> Claim:
    """Compare with FULTR at lambda 0 where it is to work: theta 1 breaks ties for the group behind."""
    unfair, findings = _squares(results, part, "fultr")[:, 0], []
    for method, title, works in (
        ("equity-of-attention", "regression", results.plan.is_german),
        ("equity-of-attention-true", "true relevance", True),
    ):
        if works:
            _, lowest = results.lowest(part, method, clicks_of(results.plan))
            effect = f"{title}: lowest squared disparity - half of that of FULTR at lambda 0"
            findings.append(below_zero(effect, estimate(lowest - unfair / 2)))
        else:
            findings += _unfair(results, part, method, title)
    statement = (
        "Equity of Attention works on regression relevances and on true ones"
        if results.plan.is_german
        else "Equity of Attention fails on regression relevances and works on true ones"
    )
    return "F2e", statement, tuple(findings), BY_CONSTRUCTION if results.plan.data == "synthetic" else ""


def _regression(results: Results) -> Verdict:
    clicks = clicks_of(results.plan)
    errors = np.array(
        [
            (row["relative_error_1"], row["relative_error_2"])
            for row in results.rows
            if row["method"] == "equity-of-attention" and row["clicks"] == clicks and row["trade_off"] == 1.0
        ]
    )
    first, second = estimate(errors[:, 0]), estimate(errors[:, 1])
    effect = (
        "difference of the regression's relative errors, group 1 - group 2"
        f" (means {100 * first.mean:+.1f}% and {100 * second.mean:+.1f}%)"
    )
    apart = estimate(errors[:, 0] - errors[:, 1])
    if results.plan.is_german:
        statement = "the regression errs about alike for both groups"
        findings = (inside(effect, apart, -0.1, 0.1),)
    else:
        statement = "the regression's relative error differs between the groups"
        findings = (differs(effect, apart),)
    note = BY_CONSTRUCTION if results.plan.data == "synthetic" else ""
    return Verdict("F2f", statement, results.plan.title, PARTS["train"], findings, note)


def _draw(results: Results, path: Path) -> Path:
    clicks = clicks_of(results.plan)
    # the same look on all data sets
    looks = {method: number for number, method in enumerate(("fultr", "fultr-mlp", *BASELINES, *BEYOND))}
    lines = [Line(method, clicks, style=looks[method]) for method in _methods(results.plan)]
    if results.plan.paper_splits:
        label = f"{METHODS[PAPER].title} ({results.plan.paper_splits} splits)"
        lines.append(Line(PAPER, clicks, label, style=len(looks)))
    settings = f"{clicks_text(clicks)}, no click noise"
    return draw_trade_offs("Figure 2: utility and disparity", settings, results, lines, path)


FIGURE = Figure("fig2", "utility against disparity", _runs, _judge, _draw, on_german=True)
