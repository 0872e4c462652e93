"""`fultr rank`: rankings of items by a saved policy."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.cli.modes import warn_of_modes_by_exposure
from fultr.cli.options import Json
from fultr.cli.output import print_json, progress, say
from fultr.data import RankingDataset, read_letor
from fultr.data.dataset import rows_of
from fultr.datasets.load import LETOR_ENDINGS
from fultr.errors import InputError
from fultr.expectation import examination_weights
from fultr.files import existing_file, writable_file
from fultr.logs.features import with_features
from fultr.policy import log_prob_of_positions, rank_positions, sample_positions
from fultr.policy.plackett_luce import cut_positions
from fultr.policy.ranking_files import (
    TABLE_ENDINGS,
    RankingFormat,
    ShownItems,
    format_of,
    read_scored,
    write_rankings,
)
from fultr.policy.rotation import expected_exposure, rotated_positions
from fultr.training import FairRanker, load
from fultr.training.policy_files import read_policy_file

POLICY_FILE = "policy.safetensors"
"""The name of the policy in the folder of a training run."""

CELLS_A_BLOCK = 1 << 18
"""Items (rankings x the longest list) that are ranked together, or else a single ranking."""

Policy = Annotated[Path, typer.Argument(help=f"A saved policy, or the folder of a run with {POLICY_FILE}.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Always the most likely ranking, by falling score.")
]


def rank(
    policy: Policy,
    items: Annotated[
        Path, typer.Argument(help="Items of queries: LETOR text, or a .parquet, .csv or .arrow table.")
    ],
    samples: Annotated[
        int | None, typer.Option(min=1, help="Rankings to draw for each list; 1 by default.")
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", "--depth", min=1, help="Positions of a page: show only so many items."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write: .parquet, .csv, .trec or .run; else CSV is printed.")
    ] = None,
    form: Annotated[
        RankingFormat | None, typer.Option("--format", help="The format, if not by the ending of --out.")
    ] = None,
    rotate: Annotated[
        int | None,
        typer.Option(min=1, help="Instead: so many rankings to show in turn, with the policy's exposure."),
    ] = None,
    deterministic: Deterministic = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw the rankings of this seed again; else they are fresh.")
    ] = None,
    json: Json = False,
) -> None:
    """Rank items with a saved policy: one row for each item that each ranking shows.

    Rankings are drawn afresh in every call. Where only a few can be kept, --rotate chooses some that give
    groups the exposure of the policy when they are shown in turn. --deterministic does not: it always shows
    the same items first.

    The column ranking_log_prob is the log-probability of the whole ranking, as far as it is shown, under the
    policy. It is NOT the propensity column of a click log, which is the probability that a position is
    looked at.

    \b
    Example:
      fultr rank policy.safetensors items.parquet --samples 5 --top-k 10 --out rankings.parquet
      fultr rank policy.safetensors items.parquet --rotate 8 --out rankings.parquet
      fultr rank policy.safetensors items.csv --seed 1 | head
    """
    chosen = _checked_format(policy, items, out, form, json=json)
    _check_one({"--samples": samples, "--rotate": rotate, "--deterministic": deterministic or None})
    ranker = load_policy(policy)
    data, scores = _scored_items(items, ranker)
    used = None if deterministic else secrets.randbelow(1 << 32) if seed is None else seed
    if deterministic:
        draws = _Draws(data, scores, 1, lambda block: cut_positions(block.mode(), top_k))
        warn_of_modes_by_exposure(ranker, data, scores)
    elif rotate is not None:
        ties = np.random.default_rng(used).random(data.rows)
        weights = examination_weights(ranker.position_bias_, int(data.lengths.max(initial=1)), top_k)
        draws = _Draws(
            data, scores, rotate, lambda block: cut_positions(block.rotated(rotate, weights, ties), top_k)
        )
    else:
        rng = np.random.default_rng(used)
        draws = _Draws(data, scores, samples or 1, lambda block: block.drawn(rng, top_k))
    with progress("ranking") as report:
        rows = write_rankings(data, draws.shown(report), sys.stdout.buffer if out is None else out, chosen)
    if json:
        summary = {"file": str(out), "format": str(chosen), "lists": len(data), "samples": draws.samples}
        print_json({**summary, "rows": rows, "seed": used})
    if out is not None:
        say(f"wrote {out}" + ("" if used is None else f" (--seed {used} repeats it)"))


def _check_one(given: dict[str, int | None]) -> None:
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise InputError(f"give {names[0]} or {names[1]}, not both")


def load_policy(path: Path) -> FairRanker:
    """Load a saved policy, or that of a run from its folder."""
    file = path
    with suppress(OSError):  # of a name that is too long, which reading says better
        if path.is_dir():
            file = path / POLICY_FILE
            if not file.exists():
                raise InputError(f"is a folder without a {POLICY_FILE}; name a saved policy", file=path)
    model = read_policy_file(file).content.get("model")
    if isinstance(model, dict) and model.get("kind") == "module":
        problem = (
            f"its scorer is a torch module of its maker's own, {model.get('name')}, which cannot be loaded"
            " from the command line; use fultr.load(path, module=...) in Python"
        )
        raise InputError(problem, file=file)
    return load(file)


def _checked_format(
    policy: Path, items: Path, out: Path | None, form: RankingFormat | None, *, json: bool
) -> RankingFormat:
    """Return the format to write; what cannot be done is said before the work."""
    if out is None:
        if json:
            raise InputError("--json needs --out: rankings are printed otherwise")
        if form is RankingFormat.PARQUET:
            raise InputError("Parquet is not for printing; give --out")
        return form or RankingFormat.CSV
    chosen = form or format_of(out)
    if writable_file(out).resolve() in (policy.resolve(), items.resolve()):
        raise InputError("would be written over, though it is read; give --out another name", file=out)
    return chosen


def _scored_items(path: Path, ranker: FairRanker) -> tuple[RankingDataset, NDArray[np.float64]]:
    """Return the items, and the score of each."""
    file, wanted = existing_file(path), ranker.known_features
    ending = file.suffix.lower()
    if ending not in (*LETOR_ENDINGS, *TABLE_ENDINGS):
        endings = ", ".join((*LETOR_ENDINGS, *TABLE_ENDINGS))
        raise InputError(f"the name of a file of items must end in one of: {endings}", file=file)
    with progress("reading") as report:
        if ending in TABLE_ENDINGS:
            data = read_scored(file, wanted, ranker.feature_scores, progress=report)
            scores = data.features[:, 0].astype(np.float64)
        else:
            data = with_features(read_letor(file, progress=report), wanted, file)
            scores = ranker.feature_scores(data)
    try:
        return data, scores + ranker.offsets_of(data)
    except InputError as error:
        raise error.located(file) from None


@dataclass(frozen=True)
class _Block:
    """Consecutive lists, and the numbers, from 1, of the rankings that are wanted of each of them.

    Positions come list by list, and for each list ranking by ranking.
    """

    first_row: int
    scores: NDArray[np.float64]
    offsets: NDArray[np.int64]
    samples: NDArray[np.int32]

    @property
    def lists(self) -> NDArray[np.int64]:
        """The list of each ranking, from 0."""
        return np.repeat(np.arange(self.offsets.size - 1), self.samples.size)

    def drawn(self, rng: np.random.Generator, top_k: int | None) -> NDArray[np.int32]:
        """Return rankings that are drawn from the policy."""
        return sample_positions(self.scores, self.offsets, self.lists, rng, top_k=top_k)

    def mode(self) -> NDArray[np.int32]:
        """Return the most likely ranking of each list."""
        return rank_positions(self.scores, self.offsets)

    def rotated(self, n: int, weights: NDArray[np.float64], ties: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return rankings, of n that are chosen to be shown in turn."""
        exposure = expected_exposure(self.scores, self.offsets, weights)
        own_ties = ties[self.first_row : self.first_row + exposure.size]
        chosen = rotated_positions(exposure, self.offsets, n, weights, own_ties)[self.samples - 1]
        lengths = np.diff(self.offsets)[self.lists]
        ranking = np.repeat(np.tile(np.arange(self.samples.size), self.offsets.size - 1), lengths)
        return np.asarray(chosen[ranking, rows_of(self.offsets, self.lists)])


class _Draws:
    """Rankings of all lists, made and shown block by block.

    What is drawn does not depend on the blocks.
    """

    def __init__(
        self,
        data: RankingDataset,
        scores: NDArray[np.float64],
        samples: int,
        positions: Callable[[_Block], NDArray[np.int32]],
    ) -> None:
        self.data = data
        self.scores = scores
        self.samples = samples
        self.positions = positions

    def shown(self, report: Progress) -> Iterator[ShownItems]:
        """Yield what the rankings show."""
        for lists, samples in self._blocks():
            yield self._block(lists, samples)
            report(lists.stop, len(self.data))

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.int32]]]:
        """Yield consecutive lists with the numbers of their samples; a list with many comes in parts."""
        lengths, numbers, start = self.data.lengths, np.arange(1, self.samples + 1, dtype=np.int32), 0
        while start < lengths.size:
            # padded to the longest, as the log-probabilities need them
            longest = np.maximum.accumulate(lengths[start : start + CELLS_A_BLOCK])
            cells = longest * np.arange(1, longest.size + 1) * self.samples
            stop = start + max(1, int(np.searchsorted(cells, CELLS_A_BLOCK, side="right")))
            at_once = max(1, CELLS_A_BLOCK // int(lengths[start])) if stop == start + 1 else self.samples
            for first in range(0, self.samples, at_once):
                yield slice(start, stop), numbers[first : first + at_once]
            start = stop

    def _block(self, lists: slice, samples: NDArray[np.int32]) -> ShownItems:
        first_row = int(self.data.offsets[lists.start])
        offsets = self.data.offsets[lists.start : lists.stop + 1] - first_row
        scores = self.scores[first_row : first_row + int(offsets[-1])]
        block = _Block(first_row, scores, offsets, samples)
        repeated = block.lists
        rows, lengths = rows_of(offsets, repeated), np.diff(offsets)[repeated]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        position = self.positions(block)
        log_prob = log_prob_of_positions(torch.from_numpy(scores[rows]), position, ends).numpy()
        ranking = np.repeat(np.arange(repeated.size), lengths)
        shown = np.flatnonzero(position)
        shown = shown[np.lexsort((position[shown], ranking[shown]))]
        return ShownItems(
            row=first_row + rows[shown],
            sample=np.tile(samples, offsets.size - 1)[ranking[shown]],
            position=position[shown],
            score=scores[rows[shown]],
            ranking_log_prob=log_prob[ranking[shown]],
        )
