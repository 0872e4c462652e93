"""`fultr rank`: rankings of items by a saved policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.cli.options import Json, Seed
from fultr.cli.output import print_json, progress, say
from fultr.data import RankingDataset, read_letor
from fultr.data.dataset import rows_of
from fultr.datasets.load import LETOR_ENDINGS
from fultr.errors import InputError
from fultr.files import existing_file, writable_file
from fultr.policy import log_prob_of_positions, rank_positions, sample_positions
from fultr.policy.plackett_luce import cut_positions
from fultr.policy.ranking_files import (
    TABLE_ENDINGS,
    RankingFormat,
    ShownItems,
    format_of,
    read_scored,
    with_features,
    write_rankings,
)
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
    top_k: Annotated[int | None, typer.Option(min=1, help="Show only so many items of each ranking.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write: .parquet, .csv, .trec or .run; else CSV is printed.")
    ] = None,
    form: Annotated[
        RankingFormat | None, typer.Option("--format", help="The format, if not by the ending of --out.")
    ] = None,
    deterministic: Deterministic = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Rank items with a saved policy: one row for each item that each ranking shows.

    The column ranking_log_prob is the log-probability of the whole ranking, as far as it is shown, under the
    policy. It is NOT the propensity column of a click log, which is the probability that a position is
    looked at.

    \b
    Example:
      fultr rank policy.safetensors items.parquet --samples 5 --top-k 10 --out rankings.parquet
      fultr rank policy.safetensors items.csv --deterministic | head
    """
    chosen = _checked_format(policy, items, out, form, json=json)
    if deterministic and samples is not None:
        raise InputError("give --samples or --deterministic, not both")
    ranker = load_policy(policy)
    data, scores = _scored_items(items, ranker)
    draws = _Draws(data, scores, samples or 1, top_k, None if deterministic else np.random.default_rng(seed))
    with progress("ranking") as report:
        rows = write_rankings(data, draws.shown(report), sys.stdout.buffer if out is None else out, chosen)
    if json:
        summary = {"file": str(out), "format": str(chosen), "lists": len(data), "samples": draws.samples}
        print_json({**summary, "rows": rows})
    if out is not None:
        say(f"wrote {out}")


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
    file, wanted = existing_file(path), [str(name) for name in ranker.feature_names_in_]
    ending = file.suffix.lower()
    if ending not in (*LETOR_ENDINGS, *TABLE_ENDINGS):
        endings = ", ".join((*LETOR_ENDINGS, *TABLE_ENDINGS))
        raise InputError(f"the name of a file of items must end in one of: {endings}", file=file)
    with progress("reading") as report:
        if ending in TABLE_ENDINGS:
            data = read_scored(file, wanted, ranker.predict, progress=report)
            return data, data.features[:, 0].astype(np.float64)
        data = with_features(read_letor(file, progress=report), wanted, file)
        return data, ranker.predict(data)


class _Draws:
    """Rankings of all lists, drawn list by list and shown block by block; without randomness, their modes.

    What is drawn does not depend on the blocks.
    """

    def __init__(
        self,
        data: RankingDataset,
        scores: NDArray[np.float64],
        samples: int,
        top_k: int | None,
        rng: np.random.Generator | None,
    ) -> None:
        self.data = data
        self.scores = scores
        self.samples = samples
        self.top_k = top_k
        self.rng = rng

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
        repeated = np.repeat(np.arange(offsets.size - 1), samples.size)
        rows, lengths = rows_of(offsets, repeated), np.diff(offsets)[repeated]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        position = self._positions(scores, offsets, repeated)
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

    def _positions(
        self, scores: NDArray[np.float64], offsets: NDArray[np.int64], lists: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        if self.rng is not None:
            return sample_positions(scores, offsets, lists, self.rng, top_k=self.top_k)
        return cut_positions(rank_positions(scores, offsets), self.top_k)
