"""`fultr demo`: the main job, out of the box."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fultr
import fultr.datasets
import fultr.reports
import fultr.serving
from fultr.cli.options import Json, Seed
from fultr.cli.output import print_json, print_table, progress, results, say
from fultr.cli.training_options import settings_of
from fultr.files import make_folder, write_text

CLICKS, QUERIES = 10_000, 1_000
"""Impressions with a click to train on, and as many to choose by; queries of the synthetic data."""

CONFIDENCE = 0.95


class DemoData(StrEnum):
    """What the demo ranks."""

    SYNTHETIC = "synthetic"
    GERMAN = "german"


GOALS: dict[DemoData, dict[str, float]] = {
    DemoData.SYNTHETIC: {"max_disparity": 0.5, "confidence": CONFIDENCE},
    DemoData.GERMAN: {"max_disparity": 0.1},
}
"""What is asked of the fair policy; German Credit has too few people for a promise."""

Folder = Annotated[Path, typer.Option(help="The folder that tables, pictures and the policy go to.")]


def demo(
    out: Folder = Path("fultr-demo"),
    data: Annotated[
        DemoData, typer.Option(help="Synthetic queries, or German Credit's 500 lists of loan applicants.")
    ] = DemoData.SYNTHETIC,
    serve: Annotated[
        bool, typer.Option("--serve", help="Put the fair policy to work instead, with simulated users.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="With --serve: the port.")] = 8000,
    visits: Annotated[
        int | None, typer.Option(min=1, help="With --serve: end after so many visits. [default: Ctrl-C]")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Learn a fair ranking from simulated clicks, start to end.

    Simulates a biased click log, trains policies from useful to fair and one under a limit of disparity that
    is promised for new queries, compares them with the ranking that was logged and with one learned from raw
    clicks, and writes the table, the trade-off as a picture, the policy, and report.html to explore it all
    in a browser.

    \b
    Example:
      fultr demo --out my-first-policy
      fultr demo --serve
    """
    make_folder(out)
    lists: fultr.DataSplits = fultr.datasets.german_credit(seed=seed)
    if data is DemoData.SYNTHETIC:
        lists = fultr.datasets.synthetic(queries=QUERIES, seed=seed)
    bias, goal = fultr.PositionBias.power(1.0), GOALS[data]
    logging = fultr.RankingSVM.train(lists.train, seed=seed)
    log, valid = _simulate(lists, logging, bias, seed)
    if serve:
        _serve(out, lists.test, log, valid, goal, seed, port, visits)
        return
    front, limited, naive = _train(log, valid, goal, seed)
    fair = f"fair: disparity at most {goal['max_disparity']:g}"
    policies = {"as logged": logging, "learned from raw clicks": naive, fair: limited}
    evaluations = {
        name: {
            part: fultr.evaluate(policy, labelled, position_bias=bias, seed=seed)
            for part, labelled in (("train", lists.train), ("test", lists.test))
        }
        for name, policy in policies.items()
    }
    written = [
        *_write(out, front, limited, evaluations),
        _report(out, front, fair, limited, log, valid, seed),
    ]
    summary = {
        name: {part: evaluation.to_dict() for part, evaluation in parts.items()}
        for name, parts in evaluations.items()
    }
    if json:
        print_json({"log": log.describe(), "policies": summary, "written": [str(path) for path in written]})
        return
    _show(log, limited, evaluations, written)


def _serve(
    out: Path,
    data: fultr.RankingDataset,
    log: fultr.ClickLog,
    valid: fultr.ClickLog,
    goal: dict[str, float],
    seed: int,
    port: int,
    visits: int | None,
) -> None:
    """Train the fair policy, and serve it to simulated users."""
    say(f"training under a disparity of at most {goal['max_disparity']:g} ...")
    ranker = fultr.FairRanker(**goal, seed=seed).fit(log, valid=valid)  # type: ignore[arg-type]
    fultr.serving.serve_demo(
        fultr.save(ranker, out / "policy.safetensors"),
        out / "events",
        data,
        fultr.PositionBias.power(1.0),
        port=port,
        max_disparity=goal["max_disparity"],
        visits=visits,
        seed=seed,
        say=say,
    )


def _simulate(
    data: fultr.DataSplits, logging: fultr.RankingSVM, bias: fultr.PositionBias, seed: int
) -> tuple[fultr.ClickLog, fultr.ClickLog]:
    with progress("simulating clicks") as report:
        log = fultr.simulate_clicks(data.train, logging, bias, clicks=CLICKS, seed=seed, progress=report)
        valid = fultr.simulate_clicks(
            data.valid, logging, bias, clicks=CLICKS, seed=seed + 1, progress=report
        )
    return log, valid


def _train(
    log: fultr.ClickLog, valid: fultr.ClickLog, goal: dict[str, float], seed: int
) -> tuple[fultr.Frontier, fultr.FairRanker, fultr.FairRanker]:
    say("training ten fairness weights together (the first run also compiles) ...")
    front = fultr.sweep(log, valid=valid, seeds=[seed])
    say(f"training under a disparity of at most {goal['max_disparity']:g} ...")
    limited = fultr.FairRanker(**goal, seed=seed).fit(log, valid=valid)  # type: ignore[arg-type]
    naive = fultr.FairRanker(fairness_weight=0.0, utility_ips=False, disparity_ips=False, seed=seed)
    return front, limited, naive.fit(log, valid=valid)


def _write(
    out: Path,
    front: fultr.Frontier,
    limited: fultr.FairRanker,
    evaluations: dict[str, dict[str, fultr.Evaluation]],
) -> list[Path]:
    lines = ["policy,lists,dcg,disparity,group,exposure_share,merit_share"]
    for name, parts in evaluations.items():
        for part, evaluation in parts.items():
            for group in evaluation.groups:
                shares = f"{evaluation.exposure_share[group]:.6f},{evaluation.merit_share[group]:.6f}"
                lines.append(
                    f"{name},{part},{evaluation.dcg:.6f},{evaluation.disparity:.6f},{group},{shares}"
                )
    return [
        write_text(out / "policies.csv", "\n".join(lines) + "\n"),
        front.to_csv(out / "frontier.csv"),
        front.plot(out / "frontier.png"),
        front.plot(out / "frontier.svg"),
        fultr.save(limited, out / "policy.safetensors"),
    ]


def _report(
    out: Path,
    front: fultr.Frontier,
    name: str,
    limited: fultr.FairRanker,
    log: fultr.ClickLog,
    valid: fultr.ClickLog,
    seed: int,
) -> Path:
    say("writing the page ...")
    settings = {
        **settings_of(fultr.FairRanker(seed=seed)),
        "fairness_weights": [point.fairness_weight for point in front.chosen],
        "seeds": [seed],
    }
    run = fultr.reports.run_of_frontier(front, settings, "fultr demo", {name: limited})
    return fultr.reports.write_report(
        fultr.reports.report_on_run(run, log, valid, seed=seed), out / "report.html"
    )


def _show(
    log: fultr.ClickLog,
    limited: fultr.FairRanker,
    evaluations: dict[str, dict[str, fultr.Evaluation]],
    written: list[Path],
) -> None:
    console = results()
    console.print(
        f"{len(log.data)} queries of {log.data.lengths[0]} candidates. Simulated users looked at position k"
        " with probability 1/k and clicked every relevant candidate they looked at:"
        f" {int(log.click.sum())} clicks in {len(log)} impressions.\n"
    )
    for part, title in (
        ("train", "On the queries of the log, by their true relevance (which no policy has seen)"),
        ("test", "On new queries, by their true relevance"),
    ):
        groups = next(iter(evaluations.values()))[part].groups
        shares = [f"{group}: exposure / merit" for group in groups]
        columns = ["policy", "DCG", "disparity, 95% interval", *shares]
        rows = [[name, *_cells(parts[part])] for name, parts in evaluations.items()]
        print_table(console, title, columns, rows)
        console.print("")
    console.print(_conclusion(limited, evaluations))
    console.print("Wrote " + ", ".join(str(path) for path in written))


def _conclusion(limited: fultr.FairRanker, evaluations: dict[str, dict[str, fultr.Evaluation]]) -> str:
    """Return the sentence that says what was shown, and what was not."""
    _, naive, fair = (parts["test"] for parts in evaluations.values())
    promised = limited.new_queries_ or {}
    value, low, high = promised["disparity"]
    change = (
        f"On new queries the disparity is {abs(naive.disparity):.2f} for the policy learned from raw clicks"
        f" and {abs(fair.disparity):.2f} for the fair one"
    )
    if limited.confidence is None:
        return (
            f"{change}, which was trained to have {limited.training_disparity_:.2f}; its clicks say"
            f" {value:.2f}, anything from {low:.2f} to {high:.2f}: so few people cannot tell more."
        )
    return (
        f"{change}, whose clicks promised at most {high:.2f} with {limited.confidence:.0%} confidence; it"
        f" keeps {fair.dcg / naive.dcg:.0%} of the DCG."
    )


def _cells(evaluation: fultr.Evaluation) -> list[str]:
    low, high = evaluation.intervals["disparity"]
    shares = [
        f"{100 * evaluation.exposure_share[group]:.1f}% / {100 * evaluation.merit_share[group]:.1f}%"
        for group in evaluation.groups
    ]
    return [f"{evaluation.dcg:.3f}", f"{evaluation.disparity:+.3f} [{low:+.3f}, {high:+.3f}]", *shares]
