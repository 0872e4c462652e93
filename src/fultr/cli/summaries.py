"""Tables that say what data and logs hold."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from fultr.cli.output import print_facts, print_table


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


def print_log(console: Console, summary: dict[str, Any], most_positions: int = 20) -> None:
    """Print what a click log holds, by group and by position."""
    impressions, empty = summary["impressions"], summary["impressions_without_click"]
    dropped = " (dropped)" if summary["empties_dropped"] else f", {empty:,} of them without a click"
    rows = [
        ("impressions", f"{impressions:,}{dropped}"),
        ("clicks", f"{summary['clicks']:,}"),
        ("queries", f"{summary['queries']:,}"),
        ("candidate lists", f"{summary['lists']:,}"),
        ("features", f"{summary['features']}"),
        ("examination", _examination(summary)),
    ]
    if summary["noise"]:
        rows.append(
            ("click noise", "eps_plus {eps_plus:g}, eps_minus {eps_minus:g}".format(**summary["noise"]))
        )
    if summary["not_shown"]:
        rows.append(("candidates not shown", f"{summary['not_shown']:,}"))
    if summary["planted"]["items"]:
        rows.append(("planted items", "{items:,}, clicked {clicks:,} times".format(**summary["planted"])))
    title = f"Click log{': ' + summary['source'] if summary['source'] else ''}"
    print_facts(console, title, rows)
    if summary["groups"]:
        console.print()
        _print_by_group(console, summary["groups"])
    console.print()
    _print_by_position(console, summary["positions"], most_positions)


def _examination(summary: dict[str, Any]) -> str:
    if summary["propensity_column"]:
        return "propensities in the log"
    bias = summary["position_bias"]
    if bias is None:
        return "unknown"
    if len(bias["values"]) == 1 and not isinstance(bias["beyond"], str):
        return f"v_k = (1/k)^{bias['beyond']:g}"
    return "v_k = " + ", ".join(f"{value:.3g}" for value in bias["values"])


def _print_by_group(console: Console, groups: dict[str, Any]) -> None:
    rows = [
        (
            name,
            f"{entry['shown']:,}",
            "-" if entry["mean_position"] is None else f"{entry['mean_position']:.1f}",
            f"{entry['clicks']:,}",
            f"{entry['click_rate']:.2%}",
        )
        for name, entry in groups.items()
    ]
    print_table(console, "By group", ("group", "shown", "mean position", "clicks", "click rate"), rows)


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
