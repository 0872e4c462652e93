"""`fultr demo`: the main job on German Credit, out of the box."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fultr.cli.options import Json, Seed
from fultr.cli.output import print_json, print_table, progress, results, say
from fultr.cli.training_options import settings_of
from fultr.click_model import PositionBias
from fultr.clicks import simulate_clicks
from fultr.data import ClickLog, DataSplits
from fultr.datasets import german_credit
from fultr.evaluation import Evaluation, evaluate
from fultr.files import make_folder, write_text
from fultr.policy import RankingSVM
from fultr.report import report_on_run, run_of_frontier, write_report
from fultr.training import FairRanker, Frontier, save, sweep

CLICKS, L2 = 5_000, (1e-3, 1e-2, 1e-1)
LIMIT = 0.002
"""The most disparity that the demo's policy may have on the training clicks."""

Folder = Annotated[Path, typer.Option(help="The folder that tables, pictures and the policy go to.")]


def demo(out: Folder = Path("fultr-demo"), seed: Seed = 0, json: Json = False) -> None:
    """Learn a fair ranking of German Credit's loan applicants from simulated clicks, start to end.

    Simulates a biased click log, trains policies from useful to fair and one under a limit of disparity,
    compares them with the ranking that was logged and with one learned from raw clicks, and writes the
    table, the trade-off as a picture, the policy, and report.html to explore it all in a browser.

    \b
    Example:
      fultr demo --out my-first-policy
    """
    make_folder(out)
    data, bias = german_credit(seed=seed), PositionBias.power(1.0)
    logging = RankingSVM.train(data.train, seed=seed)
    log, valid = _simulate(data, logging, bias, seed)
    front, limited, naive = _train(log, valid, seed)
    policies = {
        "as logged": logging,
        "learned from raw clicks": naive,
        f"fair: disparity at most {LIMIT:g}": limited,
    }
    found = {
        name: {
            part: evaluate(policy, lists, position_bias=bias, intervals=None)
            for part, lists in (("train", data.train), ("test", data.test))
        }
        for name, policy in policies.items()
    }
    written = [*_write(out, front, limited, found), _report(out, front, limited, log, valid, seed)]
    summary = {name: {part: one.to_dict() for part, one in parts.items()} for name, parts in found.items()}
    if json:
        print_json({"log": log.describe(), "policies": summary, "written": [str(path) for path in written]})
        return
    _show(log, limited, found, written)


def _simulate(
    data: DataSplits, logging: RankingSVM, bias: PositionBias, seed: int
) -> tuple[ClickLog, ClickLog]:
    with progress("simulating clicks") as report:
        log = simulate_clicks(data.train, logging, bias, clicks=CLICKS, seed=seed, progress=report)
        valid = simulate_clicks(data.valid, logging, bias, clicks=CLICKS, seed=seed + 1, progress=report)
    return log, valid


def _train(log: ClickLog, valid: ClickLog, seed: int) -> tuple[Frontier, FairRanker, FairRanker]:
    say("training ten fairness weights together (the first run also compiles) ...")
    front = sweep(log, valid=valid, l2=L2, seeds=[seed])
    l2 = front.chosen[0].l2
    say(f"training under a disparity of at most {LIMIT:g} ...")
    limited = FairRanker(max_disparity=LIMIT, l2=l2, seed=seed).fit(log, valid=valid)
    naive = FairRanker(fairness_weight=0.0, utility_ips=False, disparity_ips=False, l2=l2, seed=seed)
    return front, limited, naive.fit(log, valid=valid)


def _write(
    out: Path, front: Frontier, limited: FairRanker, found: dict[str, dict[str, Evaluation]]
) -> list[Path]:
    lines = ["policy,lists,dcg,disparity,group,exposure_share,merit_share"]
    for name, parts in found.items():
        for part, one in parts.items():
            for group in one.groups:
                shares = f"{one.exposure_share[group]:.6f},{one.merit_share[group]:.6f}"
                lines.append(f"{name},{part},{one.dcg:.6f},{one.disparity:.6f},{group},{shares}")
    return [
        write_text(out / "policies.csv", "\n".join(lines) + "\n"),
        front.to_csv(out / "frontier.csv"),
        front.plot(out / "frontier.png"),
        front.plot(out / "frontier.svg"),
        save(limited, out / "policy.safetensors"),
    ]


def _report(
    out: Path, front: Frontier, limited: FairRanker, log: ClickLog, valid: ClickLog, seed: int
) -> Path:
    say("writing the page ...")
    settings = {
        **settings_of(FairRanker(l2=L2, seed=seed)),
        "fairness_weights": [point.fairness_weight for point in front.chosen],
        "seeds": [seed],
    }
    run = run_of_frontier(front, settings, "fultr demo", {f"disparity at most {LIMIT:g}": limited})
    return write_report(report_on_run(run, log, valid, seed=seed), out / "report.html")


def _show(
    log: ClickLog, limited: FairRanker, found: dict[str, dict[str, Evaluation]], written: list[Path]
) -> None:
    console = results()
    console.print(
        f"{len(log.data)} loan queries of {log.data.lengths[0]} applicants. Simulated users looked at"
        " position k with probability 1/k and clicked every creditworthy applicant they looked at:"
        f" {int(log.click.sum())} clicks in {len(log)} impressions.\n"
    )
    for part, title in (
        ("train", "On the queries of the log, by their true relevance (which no policy has seen)"),
        ("test", "On new queries"),
    ):
        groups = next(iter(found.values()))[part].groups
        columns = ["policy", "DCG", "disparity", *(f"{group}: exposure / merit" for group in groups)]
        rows = [[name, *_cells(parts[part])] for name, parts in found.items()]
        print_table(console, title, columns, rows)
        console.print("")
    checked: dict[str, Any] = limited.validation_ or {}
    interval = checked["intervals"]["disparity"]
    console.print(
        f"The fair policy's disparity is {limited.training_disparity_:.3f} on the training clicks and"
        f" {checked['disparity']:.3f} on validation clicks, where the 95% interval is"
        f" [{interval[0]:.3f}, {interval[1]:.3f}]: so few queries cannot tell more."
    )
    console.print("Wrote " + ", ".join(str(path) for path in written))


def _cells(found: Evaluation) -> list[str]:
    shares = [
        f"{100 * found.exposure_share[group]:.1f}% / {100 * found.merit_share[group]:.1f}%"
        for group in found.groups
    ]
    return [f"{found.dcg:.3f}", f"{found.disparity:+.3f}", *shares]
