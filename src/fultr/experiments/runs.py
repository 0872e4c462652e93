"""Runs: one method on one world at all its trade-offs, kept in a file each, so that none is done twice."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from fultr import __version__
from fultr.baselines.post_processing import PostProcessing
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.evaluation import evaluate
from fultr.experiments.methods import method_called
from fultr.experiments.worlds import Conditions, World, make_world
from fultr.files import read_json, write_text

FORMAT = 3
"""Of the files of runs; those of other formats are done again."""

NEEDED = {"method", "trade_off", "seconds", "run_seconds"}
"""What every row of a run has, among others."""

SECONDS_BETWEEN_REPORTS = 5

Row = dict[str, Any]
"""A trained policy: what it is, and its utility and disparity on training and on test queries."""

Reporter = Callable[[int, int], None]
"""Told how many runs are done, of how many."""


@dataclass(frozen=True)
class Run:
    """A method to be trained under some conditions, for some trade-offs, with costs to choose from."""

    method: str
    conditions: Conditions
    trade_offs: tuple[float, ...]
    l2: tuple[float, ...]

    @property
    def name(self) -> str:
        """What the file of its results is called."""
        given = self.conditions.to_dict()
        parts = [given["data"], self.method, f"{given['clicks']:g}x"]
        parts += [f"noise-{given['eps_minus']:g}"] if given["eps_minus"] else []
        parts += [f"groups-{given['groups']}"] if given["groups"] != 2 else []
        content = json.dumps([FORMAT, __version__, self.method, given, self.trade_offs, self.l2])
        digest = hashlib.blake2b(content.encode(), digest_size=4).hexdigest()
        return "_".join([*parts, f"split-{given['split']}", digest]) + ".json"


def perform(run: Run, world: World) -> list[Row]:
    """Train the policies of a run, and measure them."""
    method, world = method_called(run.method), replace(world, l2=run.l2)
    # of the processor, since runs may be paused, and others may be running
    rows, started = [], time.process_time()
    for trade_off, policy in method.train(world, run.trade_offs):
        seconds = time.process_time() - started
        row: Row = {"method": run.method, **run.conditions.to_dict(), "trade_off": float(trade_off)}
        for part, lists in (("train", world.train), ("test", world.test)):
            if lists is not None:
                row |= measures(policy, lists, world, part)
        if isinstance(policy, PostProcessing) and world.train is not None:
            errors = policy.regression_.relative_error(world.train).values()
            row |= {f"relative_error_{number}": error for number, error in enumerate(errors, start=1)}
        rows.append({**row, "seconds": seconds})
        started = time.process_time()
    # policies that are trained together share the time that took
    total = sum(row["seconds"] for row in rows)
    return [{**row, "run_seconds": total} for row in rows]


def measures(policy: Any, lists: RankingDataset, world: World, part: str) -> Row:
    """Return the DCG for each relevant item and the disparity of a policy, drawn and at its mode."""
    options: dict[str, Any] = {"position_bias": world.position_bias, "at": world.top_k, "intervals": None}
    relevant = 1.0 if lists.relevance is None else float(lists.relevance.sum()) / len(lists)
    drawn = evaluate(policy, lists, **options)
    mode = evaluate(policy, lists, stochastic=False, **options)
    return {
        f"{part}_dcg": drawn.dcg / relevant,
        f"{part}_disparity_squared": drawn.disparity_squared,
        f"{part}_mode_dcg": mode.dcg / relevant,
    }


class Archive:
    """A folder of finished runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, run: Run) -> bool:
        """Whether the results of a run are there."""
        return (self.folder / run.name).exists()

    def read(self, run: Run) -> list[Row]:
        """Return the results of a run; refuse what is no complete file of them."""
        return read_json(self.folder / run.name, _rows_of)

    def write(self, run: Run, rows: list[Row]) -> None:
        """Keep the results of a run."""
        content = {"format": FORMAT, "rows": rows}
        write_text(self.folder / run.name, json.dumps(content, indent=1) + "\n")


def _rows_of(content: Any) -> list[Row]:
    rows = content.get("rows") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows or not all(set(row) >= NEEDED for row in rows):
        raise InputError("is damaged; remove it, and the run is done again")
    return rows


def perform_all(runs: Sequence[Run], archive: Archive, workers: int, report: Reporter) -> None:
    """Do all runs that are not in the archive, those of one world together, in several processes."""
    different = list(dict.fromkeys(runs))
    for run in different:
        if archive.has(run):
            archive.read(run)  # a damaged one is to be known of now, not after the work
    missing = [run for run in different if not archive.has(run)]
    report(len(different) - len(missing), len(different))
    worlds: dict[Conditions, list[Run]] = {}
    for run in missing:
        worlds.setdefault(run.conditions, []).append(run)
    tasks = list(worlds.values())
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            for _ in _performed(task, archive):
                report(_done(different, archive), len(different))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_in_one_thread) as pool:
        try:
            waiting = {pool.submit(_perform_in, task, archive.folder) for task in tasks}
            while waiting:
                finished, waiting = wait(waiting, timeout=SECONDS_BETWEEN_REPORTS)
                report(_done(different, archive), len(different))
                for future in finished:
                    future.result()
        except BaseException:
            _give_up(pool)
            raise


def _done(runs: Sequence[Run], archive: Archive) -> int:
    return sum(archive.has(run) for run in runs)


def _give_up(pool: Executor) -> None:
    """Wait for nothing; what is finished is in the archive."""
    pool.shutdown(wait=False, cancel_futures=True)
    processes: Mapping[int, Any] = getattr(pool, "_processes", None) or {}
    for process in list(processes.values()):
        process.terminate()


def _in_one_thread() -> None:
    """Leave the other cores to the other processes, and end when the process that started this one does."""
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the parent, however it ends: nobody would take what this process makes."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _perform_in(runs: list[Run], folder: Path) -> None:
    for _ in _performed(runs, Archive(folder)):
        pass


def _performed(runs: list[Run], archive: Archive) -> Iterator[Run]:
    """Do the runs of one world, and yield each when it is kept."""
    world = make_world(runs[0].conditions)
    for run in runs:
        archive.write(run, perform(run, world))
        yield run
