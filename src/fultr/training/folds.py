"""Folds of a log: training leaves out one after the other, and policies are judged by what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.evaluation.clusters import clusters_of
from fultr.training.models import CentredModel, Model
from fultr.training.preparation import Prepared
from fultr.training.task import Task

Array = NDArray[np.float64]


class Part(NamedTuple):
    """The log without one fold, or all of it.

    `left_out` marks the rows, of those that policies are judged on, that it says nothing of.
    """

    prefix: str
    task: Task
    model: Model
    left_out: NDArray[np.bool_]


class Folds:
    """The parts of a log that policies are trained on, and the rows that they are judged on.

    The first part is all of the log. With validation clicks it is the only one, and those are the judged
    rows. Without any folds nothing is left out.

    Parameters
    ----------
    ready
        What to train on.
    count, seed
        How many folds there are, and what decides them.
    prefix
        What the names of all stages of training begin with.
    """

    def __init__(self, ready: Prepared, count: int, seed: int, prefix: str = "") -> None:
        self.judged, self.judged_model = ready.valid_task, ready.valid_model
        self.is_judged = ready.validated or count > 0
        rows = self.judged.data.rows
        self.parts = [Part(prefix, ready.task, ready.model, np.full(rows, ready.validated))]
        if count and not ready.validated:
            fold = folds_of(ready.task.data, count, seed)
            for number in range(count):
                task = ready.task.with_rows(fold != number)
                model = ready.model.on(task.data)
                self.parts.append(Part(f"{prefix}fold-{number}-", task, model, fold == number))

    def scores(self, models: Sequence[Model | CentredModel], parameters: Sequence[Array]) -> Array:
        """Return the scores of all rows by policies that did not see them, (policies, rows)."""
        data, of_parts = self.judged.data, []
        for part, model, of_part in zip(self.parts, models, parameters, strict=True):
            if not part.left_out.any():
                of_parts.append(np.zeros((of_part.shape[0], data.rows)))
                continue
            judged_model = model.on(data)
            groups = [of_part] if model.together else list(of_part[:, None])
            scores = np.concatenate([judged_model.scores(group, slice(None)) for group in groups])
            of_parts.append(scores.astype(np.float64))
        return self.left_out(of_parts)

    def left_out(self, scores: Sequence[Array]) -> Array:
        """Return for each row the score by the part that did not see it, of scores (policies, rows) by each.

        Their mean over a list is 0: scores of one list may come from policies of several folds, which agree
        only up to a constant.
        """
        data, centred = self.judged.data, np.zeros_like(scores[0])
        for part, of_part in zip(self.parts, scores, strict=True):
            if part.left_out.any():
                mean = np.add.reduceat(of_part, data.offsets[:-1], axis=1) / data.lengths
                centred[:, part.left_out] = (of_part - mean[:, data.list_of_row])[:, part.left_out]
        return centred


def folds_of(data: RankingDataset, count: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each row, at random.

    Lists of one query, and queries connected by documents that they share, are in one fold. Where nearly all
    queries are connected, documents are put into folds instead: lists are then trained on without those of
    the fold that is left out.
    """
    clusters = clusters_of(data)
    unit = clusters.of_list[data.list_of_row] if clusters.of_row is None else clusters.of_row
    names, index = np.unique(unit, return_inverse=True)
    if names.size < count:
        problem = f"there are only {names.size} independent queries to put into folds; 0 leaves out none"
        raise InputError(problem, column="folds", value=count)
    of_unit = np.random.default_rng(seed).permutation(names.size) % count
    return np.asarray(of_unit[index.reshape(-1)])
