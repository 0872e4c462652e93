"""What `fultr train` and `fultr sweep` have in common: a run that is watched, stopped and taken up again."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import fultr
import fultr.data
import fultr.training
from fultr import __version__
from fultr.cli.option_names import OPTIONS
from fultr.cli.output import say
from fultr.cli.training_options import Inputs, in_names_of_options, settings_of
from fultr.errors import FultrError, InputError, WriteError

USUAL_TURNS = 8
"""Turns that training under a limit usually takes."""

USUAL_ITERATIONS = 120
"""Iterations that the first stage of training with exact gradients usually takes."""

KERNELS = 6
"""Compiled kernels that training usually needs; those of an earlier run come from the cache."""

if TYPE_CHECKING:
    Training: TypeAlias = Callable[
        [fultr.training.RunFolder, fultr.data.Source, fultr.data.Source | None, fultr.training.Watcher],
        dict[str, Any],
    ]
    """Trains, writes what was trained into the folder, and returns the results."""


class StoppedError(FultrError):
    """Someone stopped the command; the message says what is left and how to go on."""

    def __init__(self, number: int, message: str) -> None:
        self.exit_code = 128 + number
        super().__init__(message)


class _Signalled(KeyboardInterrupt):
    """A signal that ends the work as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


@dataclass(frozen=True)
class RunLocation:
    """Where a run is kept, and how."""

    out: Path
    resume: bool
    checkpoint_every: float


def run_training(
    command: str,
    ranker: fultr.FairRanker,
    further: dict[str, Any],
    inputs: Inputs,
    location: RunLocation,
    train: Training,
) -> dict[str, Any]:
    """Train in a run folder, or go on, and return the results; those of a finished run are just read.

    Parameters
    ----------
    command
        Of which it is a run.
    ranker, further
        All settings: those of a ranker, and others.
    inputs, location
        What is trained on, and where the run is kept.
    train
        Does the work.
    """
    with _stoppable(location.out), in_names_of_options():
        config = {
            "command": command,
            "fultr_version": __version__,
            "inputs": inputs.describe(),
            "settings": {**settings_of(ranker), **further},
        }
        results = fultr.training.results_of_run(location.out, config, resume=location.resume)
        if results is not None:
            say(f"fultr: the run in {location.out} has finished already; these are its results")
            return results
        source, valid = inputs.read(ranker)
        with fultr.training.RunFolder.open(
            location.out, config, resume=location.resume, checkpoint_every=location.checkpoint_every
        ) as folder:
            with _watching(folder, ranker, _stages(ranker, further)) as watch:
                results = train(folder, source, valid, watch)
            folder.finish(results)
    return results


@contextmanager
def _stoppable(out: Path) -> Iterator[None]:
    """Turn signals, a full disk and a limit that cannot be reached into what to say about them."""
    resumable = (
        f"what was trained up to the last checkpoint is kept in {out}; the same command with --resume goes on"
    )
    try:
        with _terminated_as_interrupted():
            yield
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, _Signalled) else signal.SIGINT
        outcome = resumable if (out / fultr.training.CONFIG).exists() else "nothing was written"
        raise StoppedError(number, f"stopped by {signal.Signals(number).name}; {outcome}") from error
    except WriteError as error:
        outcome = f"; {resumable} once it can be written" if (out / fultr.training.CONFIG).exists() else ""
        raise WriteError(f"{error}{outcome}") from error
    except fultr.UnreachableLimitError as error:
        elsewhere = ", in another folder" if (out / fultr.training.CONFIG).exists() else ""
        problem = (
            f"no policy was found whose disparity on the training clicks is at most {error.limit:g}; the"
            f" lowest found is {error.lowest:.6g}. Raise {OPTIONS['max_disparity']}, or ask for the fairest"
            f" policy at a price with {OPTIONS['min_utility']}{elsewhere}"
        )
        raise InputError(problem) from error


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does, unless someone else already looks after it."""
    usual = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise _Signalled(number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stages(ranker: fultr.FairRanker, further: dict[str, Any]) -> int:
    """Return about how many stages training has."""
    if ranker.l2 is not None:
        costs = len(ranker.l2) if isinstance(ranker.l2, Sequence) else 1
    else:
        costs = len(
            fultr.training.L2_OF_PAPER if ranker.protocol == "paper" else fultr.training.L2_ONE_BY_ONE
        )
    weights, seeds = (len(further.get(name, (0,))) for name in ("fairness_weights", "seeds"))
    configurations = costs * weights * seeds
    if ranker.protocol == "paper":
        return configurations
    entropy = ranker.entropy_weight or 0.0
    fading = 0
    while entropy > fultr.training.LEAST_ENTROPY:
        fading, entropy = fading + 1, entropy * fultr.training.ENTROPY_DECAY
    turns = 1 if ranker.max_disparity is None and ranker.min_utility is None else 1 + USUAL_TURNS
    # for utility and then, unless offsets do it, for fairness, with each fold left out
    once = (ranker.l2 is not None and costs == 1) or ranker.fairness == "offsets"
    turns += (1 + ranker.folds) * (1 if once else 2) - 1
    if ranker.model in fultr.training.TREES:
        grown = fultr.training.stages_of_growing(ranker.trees or fultr.TreeSettings())
        return turns * (1 + fading) + (1 + ranker.folds) * grown
    return turns * (1 + fading) * (1 if ranker.model == "linear" else configurations)


@contextmanager
def _watching(
    folder: fultr.training.RunFolder, ranker: fultr.FairRanker, stages: int
) -> Iterator[fultr.training.Watcher]:
    """Give a watcher that writes metrics and, on a terminal, shows what is reached and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from fultr.compiled import watched_compilation

    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield folder.record
        return
    paper = fultr.training.PAPER
    usual = 2 * paper.validate_every * paper.patience if ranker.protocol == "paper" else USUAL_ITERATIONS
    done = ShareDone(stages, usual)
    shown = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*shown, console=console, transient=True) as bar:
        task = bar.add_task("training", total=1.0)

        def watch(reached: fultr.training.StepReached) -> None:
            folder.record(reached)
            line = f"{reached.stage}  utility {reached.utility:.4f}  disparity {reached.disparity:.4f}"
            share = done.after(folder.stages_done, reached.stage, reached.iterations)
            bar.update(task, completed=share, description=line)

        def compiling(number: int) -> None:
            bar.update(
                task, description=f"compiling for this machine, once: kernel {number} of about {KERNELS}"
            )

        with watched_compilation(compiling):
            yield watch


class ShareDone:
    """A guess of how much of the training is done, from stages done and how long stages were so far."""

    def __init__(self, stages: int, usual_iterations: int) -> None:
        self.stages = stages
        self.usual = float(usual_iterations)
        self.lengths: dict[str, int] = {}
        self.share = 0.0

    def after(self, stages_done: int, stage: str, iterations: int) -> float:
        """Return the share done, which never falls and stays below 1."""
        before = [length for name, length in self.lengths.items() if name != stage]
        self.lengths[stage] = iterations
        usual = sum(before) / len(before) if before else self.usual
        now = stages_done + iterations / (iterations + max(usual, 1.0))
        self.share = max(self.share, min(now / max(self.stages, stages_done + 1), 0.99))
        return self.share
