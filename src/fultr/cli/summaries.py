"""Tables that say what data and logs hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fultr
from fultr.cli.output import print_facts, print_table

if TYPE_CHECKING:
    from rich.console import Console


def print_dataset(console: Console, summary: dict[str, Any]) -> None:
    """Print what a dataset holds."""
    length = summary["list_length"]
    rows = [
        ("lists", f"{summary['lists']:,}"),
        ("queries", f"{summary['queries']:,}"),
        ("items", f"{summary['rows']:,}"),
        ("items in a list", f"{length['min']} to {length['max']}, mean {length['mean']:.1f}"),
        ("features", f"{summary['features']}"),
    ]
    if "relevance_mean" in summary:
        rows.append(
            ("relevance", f"mean {summary['relevance_mean']:.3g}, largest {summary['relevance_max']:g}")
        )
    if summary["group_columns"]:
        rows.append(("derived from the group", ", ".join(summary["group_columns"])))
    print_facts(console, f"Labelled data: {summary['source'] or 'no source given'}", rows)
    if summary["groups"]:
        groups = [
            (
                name,
                f"{entry['rows']:,}",
                f"{entry['share']:.1%}",
                f"{entry['relevance_mean']:.3g}" if "relevance_mean" in entry else "-",
            )
            for name, entry in summary["groups"].items()
        ]
        console.print()
        print_table(console, "By group", ("group", "items", "share", "mean relevance"), groups)


def print_log(
    console: Console,
    summary: dict[str, Any],
    readiness: dict[str, Any] | None = None,
    most_positions: int = 20,
) -> None:
    """Print what a click log holds, by group and by position; with the facts of its readiness, if given."""
    impressions, empty = summary["impressions"], summary["impressions_without_click"]
    without_click = "" if empty is None else f", {empty:,} of them without a click"
    rows = [
        (
            "impressions",
            f"{impressions:,}{' (empty ones dropped)' if summary['empties_dropped'] else without_click}",
        ),
        ("clicks", f"{summary['clicks']:,}"),
        ("queries", f"{summary['queries']:,}"),
        ("candidate lists", f"{summary['lists']:,}"),
        ("features", f"{summary['features']}"),
        ("examination", _examination(summary, readiness)),
    ]
    if readiness is not None:
        rows += _readiness_rows(readiness)
    if summary["noise"]:
        rows.append(("click noise", fultr.ClickNoise.from_dict(summary["noise"]).describe()))
    if summary["not_shown"]:
        rows.append(("candidates not shown", f"{summary['not_shown']:,}"))
    if summary["planted"]["items"]:
        rows.append(("planted items", "{items:,}, clicked {clicks:,} times".format(**summary["planted"])))
    title = f"Click log{': ' + summary['source'] if summary['source'] else ''}"
    print_facts(console, title, rows)
    if summary["groups"]:
        console.print()
        _print_by_group(console, summary["groups"], {} if readiness is None else readiness["groups"])
    console.print()
    _print_by_position(console, summary["positions"], most_positions)


def _examination(summary: dict[str, Any], readiness: dict[str, Any] | None) -> str:
    bias_given = readiness is not None and readiness["examination"]["source"] == "given"
    if summary["propensity_column"] and not bias_given:
        return "propensities in the log"
    bias = readiness["examination"]["position_bias"] if readiness and bias_given else summary["position_bias"]
    if bias is None:
        return "unknown"
    if bias_given and readiness is not None and readiness["examination"]["context"] is not None:
        return f"a curve for each {readiness['examination']['context']}; their mean is {_values(bias)}"
    return f"v_k = {_values(bias)}"


def _values(bias: dict[str, Any]) -> str:
    if len(bias["values"]) == 1 and not isinstance(bias["beyond"], str):
        return f"(1/k)^{bias['beyond']:g}"
    return ", ".join(f"{value:.3g}" for value in bias["values"])


def _readiness_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    overlap, weights = facts["overlap"], facts["weights"]
    moved, pairs = overlap["pairs_at_several_positions"], overlap["pairs"]
    rows = [("pairs at two positions or more", f"{moved:,} of {pairs:,} of a query and a document")]
    if weights is not None:
        half, most = weights["quantiles"]["50%"], weights["quantiles"]["99%"]
        text = f"half up to {half:.3g}, 99% up to {most:.3g}, all up to {weights['largest']:.3g}"
        worth = f"worth {weights['effective_sample_size']:,.0f} of equal weight"
        rows.append(("weights of clicks", f"{text}; {worth}"))
    return rows


def _print_by_group(console: Console, groups: dict[str, Any], judged: dict[str, Any]) -> None:
    weighed = any(entry["merit"] is not None for entry in judged.values())
    rows = [
        (
            name,
            f"{entry['shown']:,}",
            "-" if entry["mean_position"] is None else f"{entry['mean_position']:.1f}",
            f"{entry['clicks']:,}",
            f"{entry['click_rate']:.2%}",
            *(_evidence(judged[name]) if weighed else ()),
        )
        for name, entry in groups.items()
    ]
    further = ("merit", "worth") if weighed else ()
    columns = ("group", "shown", "mean position", "clicks", "click rate", *further)
    print_table(console, "By group", columns, rows)


def _evidence(group: dict[str, Any]) -> tuple[str, str]:
    return f"{group['merit']:.4g}", f"{group['effective_sample_size']:,.0f}"


def _print_by_position(console: Console, positions: list[dict[str, Any]], most: int) -> None:
    rows = [
        (f"{entry['position']}", f"{entry['shown']:,}", f"{entry['clicks']:,}", f"{entry['click_rate']:.2%}")
        for entry in positions[:most]
    ]
    if len(positions) > most:
        rest = positions[most:]
        shown, clicks = sum(entry["shown"] for entry in rest), sum(entry["clicks"] for entry in rest)
        first, last = rest[0]["position"], rest[-1]["position"]
        name = f"{first}" if first == last else f"{first} to {last}"
        rows.append((name, f"{shown:,}", f"{clicks:,}", f"{clicks / shown:.2%}"))
    print_table(console, "By position", ("position", "shown", "clicks", "click rate"), rows)
