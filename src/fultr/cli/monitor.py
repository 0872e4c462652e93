"""`fultr monitor`: what was shown, and whether it is fair."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

import fultr.serving
from fultr.cli.options import Json, UnusedSeed
from fultr.cli.output import print_json, print_table, results, say
from fultr.cli.policy_file import policy_file

ALARM = 3
"""The exit code if there is an alarm."""


def monitor(
    events: Annotated[str, typer.Argument(help="The folder of events, or a postgresql:// address.")],
    policy: Annotated[Path, typer.Option(help="The policy at work, or the folder of its run.")],
    max_disparity: Annotated[
        float | None, typer.Option(min=0, help="The limit; exit code 3 if it is certainly exceeded.")
    ] = None,
    eta: Annotated[
        float | None, typer.Option(help="Position bias v_k = (1/k)^eta. [default: the policy's]")
    ] = None,
    level: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="The probability that all alarms ever are right.")
    ] = 0.95,
    began: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="The day the watch began. [default: that of the first event]"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the page of the watch, an .html file.")] = None,
    _seed: UnusedSeed = 0,
    json: Json = False,
) -> None:
    """Watch exposure, merit and disparity of groups in the events of fultr serve, and what drifts.

    Windows go from a day to now. Their intervals hold at all times at once: look as often as you like, all
    alarms that are ever raised are right together with the level; those of the position bias if you look
    once a day. The exit code is 3 if there is an alarm: the disparity is above the limit, a feature is no
    longer what it was in the training, or the position bias is another one.

    \b
    Example:
      fultr monitor events --policy run --max-disparity 0.1
    """
    found = fultr.serving.monitor(
        events,
        fultr.serving.load_policy(policy_file(policy)),
        max_disparity=max_disparity,
        eta=eta,
        level=level,
        began=None if began is None else began.date(),
    )
    if out is not None:
        fultr.serving.write_monitor_page(found, out)
    if json:
        print_json(found.to_dict())  # without the address, which may hold a password
    else:
        _print(found)
    if out is not None:
        say(f"wrote {out}")
    if found.alarms:
        raise typer.Exit(ALARM)


def _print(found: fultr.serving.Watched) -> None:
    console = results()
    for window in found.windows:
        columns = ["group", "exposure", "merit", "exposure per merit"]
        rows = [
            [name, *map(_cell, (window.exposure[name], window.merit[name], window.exposure_per_merit[name]))]
            for name in window.exposure
        ]
        print_table(console, window.title, columns, rows)
        rows = [[name, _cell(one)] for name, one in window.disparity.items()]
        rows.append(["root of the sum of squares", _cell(window.root)])
        rows.append(["share of unknown groups", _cell(window.unknown)])
        print_table(console, "", ["groups", "disparity"], rows)
    for alarm in found.alarms:
        console.print(f"ALARM  {alarm}", style="bold red")
    if not found.alarms:
        console.print("No alarm.")


def _cell(interval: fultr.serving.WatchedInterval) -> str:
    return f"{interval.value:.3g} [{interval.low:.3g}, {interval.high:.3g}]"
