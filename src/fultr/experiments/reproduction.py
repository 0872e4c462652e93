"""The whole reproduction: runs, tables, pictures and verdicts of the figures asked for, in a folder."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fultr.arguments import one_of
from fultr.errors import InputError
from fultr.experiments import figure_1, figure_2, figure_3, figure_4, figure_5, figure_6
from fultr.experiments.example import draw_example, judge_example, run_example
from fultr.experiments.figures import Figure
from fultr.experiments.methods import L2_OF_PAPER
from fultr.experiments.protocols import HIGH, LOW, side_by_side
from fultr.experiments.results import Plan, Results
from fultr.experiments.runs import Archive, Reporter, Row, Run, perform_all
from fultr.experiments.verdicts import ENOUGH_SPLITS, EffectFinding, Verdict
from fultr.experiments.worlds import check_data
from fultr.files import make_folder, write_text, written_together

FIGURES: dict[str, Figure] = {
    module.FIGURE.name: module.FIGURE
    for module in (figure_1, figure_2, figure_3, figure_4, figure_5, figure_6)
}
EXAMPLE = "example"
PICTURES = (".png", ".svg")

QUICK = {"splits": 3, "lists": 120, "every": 9, "l2": (3e-2,), "paper_splits": 0, "quick": True}
"""The rough version: everything is there, and little of it is certain."""


@dataclass(frozen=True)
class Reproduced:
    """What was written, and what it says."""

    verdicts: list[Verdict]
    files: list[Path]


def plan_for(
    data: str, *, quick: bool = False, size: str = "default", splits: int | None = None, seed: int = 0
) -> Plan:
    """Return how much is run on a data set: as a rule, roughly, or with the paper's number of lists."""
    check_data(data)
    one_of(size, "size", "default", "paper")
    settings: dict[str, Any] = dict(QUICK) if quick else {}
    if size == "paper":
        settings["lists"] = 12_000
    if splits is not None:
        settings["splits"] = splits
        settings["paper_splits"] = min(splits, settings.get("paper_splits", Plan("german").paper_splits))
    return Plan(data, first_split=seed, **settings)


def reproduce(
    figures: Sequence[str],
    folder: str | Path,
    *,
    data: Sequence[str] = ("german", "synthetic"),
    quick: bool = False,
    size: str = "default",
    splits: int | None = None,
    seed: int = 0,
    command: str = "",
    workers: int = 1,
    report: Reporter = lambda _done, _total: None,
    say: Callable[[str], None] = lambda _line: None,
) -> Reproduced:
    """Rerun figures of the paper: pictures and tables, and a verdict on each of its claims.

    Runs that are in the folder already are not done again, so that a stopped reproduction goes on where it
    was.

    Parameters
    ----------
    figures
        Names of `FIGURES`, "example", or "all".
    folder
        Where everything goes to.
    data
        "german", "synthetic" or "mslr:FOLDER".
    quick, size, splits, seed
        How much is run; see `plan_for`.
    command
        What to say that the results were made by.
    workers
        How many processes share the runs.
    report, say
        Called with runs done and all runs, and told what is going on.
    """
    names = [*FIGURES, EXAMPLE] if "all" in figures else list(figures)
    for name in names:
        if name not in (*FIGURES, EXAMPLE):
            problem = f"no such figure; there are {', '.join([*FIGURES, EXAMPLE])} and all"
            raise InputError(problem, value=name)
    plans = [plan_for(one, quick=quick, size=size, splits=splits, seed=seed) for one in data]
    for name in figures:
        if all(plan.is_german for plan in plans) and name in FIGURES and not FIGURES[name].on_german:
            problem = "the paper has it on MSLR alone; give {data} synthetic or mslr:FOLDER"
            raise InputError(f"{name}: {problem}", options=["data"])
    return reproduce_plans(
        names, plans, make_folder(Path(folder)), command=command, workers=workers, report=report, say=say
    )


def reproduce_plans(
    names: Sequence[str],
    plans: Sequence[Plan],
    folder: Path,
    *,
    command: str = "",
    workers: int = 1,
    report: Reporter = lambda _done, _total: None,
    say: Callable[[str], None] = lambda _line: None,
) -> Reproduced:
    """Do the runs of some figures on some data sets, and write tables, pictures and verdicts.

    Runs that are in the folder already are not done again, so that a stopped reproduction goes on where it
    was.
    """
    archive, figures = Archive(make_folder(folder / "runs")), _wanted(names, plans)
    runs = runs_of(names, plans)
    say(f"{len(runs)} runs for {len(figures)} figures")
    perform_all(runs, archive, workers, report)
    verdicts, files, protocols = [], [], []
    with written_together():
        for figure, plan in figures:
            own = list(dict.fromkeys(figure.runs(plan)))
            results = Results(plan, [row for run in own for row in archive.read(run)])
            stem = folder / f"{figure.name}-{plan.data.partition(':')[0]}"
            files.append(write_table(stem.with_suffix(".csv"), results.rows))
            files += [figure.draw(results, stem.with_suffix(ending)) for ending in PICTURES]
            verdicts += figure.judge(results)
            protocols += side_by_side(results) if figure is figure_2.FIGURE else []
        if EXAMPLE in names:
            rows = run_example()
            files.append(write_table(folder / "example.csv", rows))
            files += [draw_example(rows, folder / f"example{ending}") for ending in PICTURES]
            verdicts += judge_example(rows)
        pictures = [path for path in files if path.suffix == ".png"]
        if protocols:
            files.append(write_table(folder / "protocols.csv", protocols))
        files += _write_verdicts(folder, verdicts, protocols, command, pictures)
    return Reproduced(verdicts, files)


def _wanted(names: Sequence[str], plans: Sequence[Plan]) -> list[tuple[Figure, Plan]]:
    """Return each figure with each data set that it is made for: the paper has but two on German Credit."""
    return [
        (FIGURES[name], plan)
        for plan in plans
        for name in names
        if name in FIGURES and (FIGURES[name].on_german or not plan.is_german)
    ]


def runs_of(names: Sequence[str], plans: Sequence[Plan]) -> list[Run]:
    """Return all different runs of some figures."""
    return list(dict.fromkeys(run for figure, plan in _wanted(names, plans) for run in figure.runs(plan)))


def write_table(path: Path, rows: Sequence[Row]) -> Path:
    """Write rows as CSV; the columns are all that any of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    return write_text(path, text.getvalue())


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _write_verdicts(
    folder: Path, verdicts: list[Verdict], protocols: list[Row], command: str, pictures: list[Path]
) -> list[Path]:
    from fultr import __version__

    content = {"version": __version__, "command": command, "verdicts": [one.to_dict() for one in verdicts]}
    lines = [
        "# What of the paper holds",
        "",
        f"Made by `{command or 'fultr reproduce'}`, version {__version__}. Each comparison is paired over"
        " independent splits and click simulations; intervals are of level 95%.",
        "",
        *_roughness(verdicts),
        "| claim | data | queries | verdict | splits | effect | measured | 95% interval |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        for number, finding in enumerate(verdict.findings):
            head = [verdict.claim, verdict.data, verdict.part, f"**{verdict.outcome}**"]
            splits = "exact" if verdict.claim == "E1" else str(finding.measured.splits)
            cells = [*(head if number == 0 else [""] * len(head)), splits, *_cells(finding)]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## The claims", ""]
    lines += dict.fromkeys(f"- **{one.claim}**: {one.statement}." for one in verdicts)
    notes = dict.fromkeys(f"- {one.claim}, {one.data}: {one.note}." for one in verdicts if one.note)
    lines += ["", *notes, *([""] if notes else [])]
    lines += _protocol_lines(protocols)
    lines += ["## Pictures", ""]
    lines += [f"![{path.stem}]({path.name})" for path in pictures]
    return [
        write_text(folder / "verdicts.json", json.dumps(content, indent=1) + "\n"),
        write_text(folder / "verdicts.md", "\n".join(lines) + "\n"),
    ]


def _roughness(verdicts: list[Verdict]) -> list[str]:
    """Say that few splits decide nothing, where there are few."""
    fewest = min((verdict.splits for verdict in verdicts if verdict.claim != "E1"), default=ENOUGH_SPLITS)
    if fewest >= ENOUGH_SPLITS:
        return []
    return [
        f"**Rough: {fewest} splits.** With fewer than {ENOUGH_SPLITS}, verdicts are what these runs suggest,"
        " and no more.",
        "",
    ]


def _protocol_lines(protocols: list[Row]) -> list[str]:
    if not protocols:
        return []
    names = [name for name in protocols[0] if not name.endswith((LOW, HIGH))]
    lines = ["## The paper's protocol and ours, on the same clicks", ""]
    lines += ["| " + " | ".join(name.replace("_", " ") for name in names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(_rounded(row, name) for name in names) + " |" for row in protocols]
    return [
        *lines,
        "",
        "Means over splits with 95% intervals; the third row of each is the difference, split by split."
        " Seconds are those of one processor for each policy, and for all that are trained at once. The"
        f" paper's protocol has the one cost of large parameters {L2_OF_PAPER:g}; the default one chooses on"
        " validation clicks.",
        "",
    ]


def _rounded(row: Row, name: str) -> str:
    value = row.get(name, "")
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return f"{text} [{row[name + LOW]:.3g}, {row[name + HIGH]:.3g}]" if name + LOW in row else text


def _cells(finding: EffectFinding) -> list[str]:
    values = finding.to_dict()
    value = "-" if values["value"] is None else f"{values['value']:.4g}"
    interval = "-" if values["interval"] is None else "[{:.4g}, {:.4g}]".format(*values["interval"])
    return [f"{finding.effect} ({finding.outcome})", value, interval]
