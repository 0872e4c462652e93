"""Rankings of many lists by their scores: drawn, the most likely ones, or a few to be shown in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fultr.arguments import Progress
from fultr.click_model import PositionBias
from fultr.data import RankingDataset
from fultr.data.dataset import rows_of
from fultr.expectation import examination_weights
from fultr.policy.log_prob import log_prob_of_positions
from fultr.policy.plackett_luce import cut_positions, rank_positions, sample_positions
from fultr.policy.ranking_files import ShownItems
from fultr.policy.rotation import expected_exposure, rotated_positions

CELLS_A_BLOCK = 1 << 18
"""Items (rankings x the longest list) that are ranked together, or else a single ranking."""


class DrawnRankings:
    """Rankings of all lists, made block by block; what is drawn does not depend on the blocks.

    Parameters
    ----------
    data, scores
        The lists, and the score of each row.
    samples
        How many rankings of each list.
    seed
        Draw them from this seed; None for the most likely ranking, the same each time.
    top_k
        How many items a ranking shows, if not all.
    rotate_with
        Choose the rankings so that, shown in turn, they give items the exposure of the policy under this
        position bias.
    """

    def __init__(
        self,
        data: RankingDataset,
        scores: NDArray[np.float64],
        samples: int,
        *,
        seed: int | None = None,
        top_k: int | None = None,
        rotate_with: PositionBias | None = None,
    ) -> None:
        self.data = data
        self.scores = scores
        self.samples = samples
        self.top_k = top_k
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.ties: NDArray[np.float64] | None = None
        if rotate_with is not None:
            self.weights = examination_weights(rotate_with, int(data.lengths.max(initial=1)), top_k)
            self.ties = np.random.default_rng(seed).random(data.rows)

    def shown(self, report: Progress | None = None) -> Iterator[ShownItems]:
        """Yield what the rankings show; `report` is called with the lists done and all there are."""
        for lists, samples in self._blocks():
            yield self._shown_in(lists, samples)
            if report is not None:
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

    def _shown_in(self, lists: slice, samples: NDArray[np.int32]) -> ShownItems:
        first_row = int(self.data.offsets[lists.start])
        offsets = self.data.offsets[lists.start : lists.stop + 1] - first_row
        block = _Block(first_row, self.scores[first_row : first_row + int(offsets[-1])], offsets, samples)
        repeated = block.lists
        rows, lengths = rows_of(offsets, repeated), np.diff(offsets)[repeated]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        position = cut_positions(self._positions(block), self.top_k)
        log_prob = log_prob_of_positions(torch.from_numpy(block.scores[rows]), position, ends).numpy()
        ranking = np.repeat(np.arange(repeated.size), lengths)
        shown = np.flatnonzero(position)
        shown = shown[np.lexsort((position[shown], ranking[shown]))]
        return ShownItems(
            row=first_row + rows[shown],
            sample=np.tile(samples, offsets.size - 1)[ranking[shown]],
            position=position[shown],
            score=block.scores[rows[shown]],
            ranking_log_prob=log_prob[ranking[shown]],
        )

    def _positions(self, block: _Block) -> NDArray[np.int32]:
        if self.ties is not None:
            return block.rotated(self.samples, self.weights, self.ties)
        if self.rng is None:
            return rank_positions(block.scores, block.offsets)
        return sample_positions(block.scores, block.offsets, block.lists, self.rng, top_k=self.top_k)


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

    def rotated(self, n: int, weights: NDArray[np.float64], ties: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return rankings, of n that are chosen to be shown in turn."""
        exposure = expected_exposure(self.scores, self.offsets, weights)
        own_ties = ties[self.first_row : self.first_row + exposure.size]
        chosen = rotated_positions(exposure, self.offsets, n, weights, own_ties)[self.samples - 1]
        lengths = np.diff(self.offsets)[self.lists]
        ranking = np.repeat(np.tile(np.arange(self.samples.size), self.offsets.size - 1), lengths)
        return np.asarray(chosen[ranking, rows_of(self.offsets, self.lists)])


def exposure_shares(
    scores: NDArray[np.float64], lists: RankingDataset, weights: NDArray[np.float64], *, drawn: bool
) -> NDArray[np.float64]:
    """Return each group's share of the exposure: of rankings that are drawn, or of the most likely ones."""
    if drawn:
        exposure = expected_exposure(scores, lists.offsets, weights)
    else:
        exposure = weights[rank_positions(scores, lists.offsets) - 1]
    has_group = lists.group >= 0
    sums = np.bincount(lists.group[has_group], weights=exposure[has_group], minlength=len(lists.group_names))
    return np.asarray(sums / sums.sum())
