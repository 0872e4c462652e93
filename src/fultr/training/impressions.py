"""Single impressions with their own evidence, batches of them, and the scores of the rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fultr.data import Cells, ClickLog, Counts, RankingDataset, Source
from fultr.data.dataset import rows_of
from fultr.data.propensity import NOT_SHOWN
from fultr.errors import InputError
from fultr.policy import MLPScorer
from fultr.training.models import LinearModel, Model, ModuleModel, fill_parameters
from fultr.training.sources import single_impressions
from fultr.training.task import Weighing

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

BATCHES_TOGETHER = 256
"""Batches whose arrays are made together, which takes a fraction of the time of making one after another."""

ORDER_OF_EPOCH = 1
"""Says, in a seed, what the random numbers are for."""


class Batch(NamedTuple):
    """Some impressions as a ragged table: one list of candidates for each.

    `rows` are rows of the data and `offsets` say where each list starts. `cell` numbers the list and group of
    each row: list * (groups + 1) + group, unknown groups being one group more. `utility` is what a unit of
    E[f(rank)] of each row adds to the utility of its impression, `merit`, (lists, groups), what the groups
    have earned in it.
    """

    rows: Numbers
    offsets: Numbers
    cell: Numbers
    utility: Array
    merit: Array

    @property
    def size(self) -> int:
        """Number of impressions."""
        return int(self.offsets.size) - 1


@dataclass(frozen=True, eq=False)
class Impressions:
    """Impressions of lists, each with what its own clicks say of the relevance of its items.

    Parameters
    ----------
    data
        The lists.
    lists
        The list that each impression showed.
    offsets
        Where the entries of each impression start, and the number of entries at the end.
    utility, disparity
        (entries,) What is known of the relevance of each item, for the one and for the other.
    """

    data: RankingDataset
    lists: Numbers
    offsets: Numbers
    utility: Array
    disparity: Array

    @classmethod
    def of(cls, source: Source, weighing: Weighing) -> Impressions:
        """Take the impressions of a log; or each labelled list as one impression, with its relevance."""
        single = single_impressions(source, "training on impressions", "source")
        if isinstance(single, RankingDataset):
            lists, known = np.arange(len(single)), weighing.evidence(single)
        else:
            lists, known = single.lists, weighing.evidence(_counted_apart(single))
        utility, disparity = (evidence.weight.numpy() for evidence in known)
        return cls(single.data, lists, single.offsets, utility, disparity)

    def __len__(self) -> int:
        return int(self.lists.size)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.data.group_names)

    @property
    def content(self) -> list[Any]:
        """All that training depends on."""
        data, own = self.data, (self.lists, self.offsets, self.utility, self.disparity)
        return [data.features, data.offsets, data.group, *own]

    def batches(self, size: int, steps: range, seed: int) -> Iterator[Batch]:
        """Yield the batches of some steps of training.

        Training goes through all impressions in a random order, again and again, in a new order each time;
        step t takes impressions t * size, t * size + 1, ... of this endless row, so that a batch may hold
        the last impressions of one epoch and the first of the next. A step's batch depends on nothing but
        the seed.
        """
        order = _EndlessOrder(len(self), seed)
        for first in range(steps.start, steps.stop, BATCHES_TOGETHER):
            last = min(first + BATCHES_TOGETHER, steps.stop)
            yield from self.cut(order.between(first * size, last * size), size)

    def cut(self, chosen: Numbers, size: int) -> Iterator[Batch]:
        """Yield given impressions in batches of one size; the last one may be smaller."""
        with_unknown = self.groups + 1
        lists = self.lists[chosen]
        entries, rows = rows_of(self.offsets, chosen), rows_of(self.data.offsets, lists)
        lengths = self.data.lengths[lists]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        number = np.repeat(np.arange(chosen.size), lengths)
        # the remainder makes the last group of -1
        group = self.data.group[rows].astype(np.int64) % with_unknown
        cells = np.bincount(
            number * with_unknown + group, self.disparity[entries], minlength=chosen.size * with_unknown
        )
        merit = cells.reshape(chosen.size, with_unknown)[:, : self.groups].astype(np.float64)
        cell, utility = number % size * with_unknown + group, self.utility[entries]
        for first in range(0, chosen.size, size):
            last = min(first + size, chosen.size)
            inside = slice(starts[first], starts[last])
            offsets = starts[first : last + 1] - starts[first]
            yield Batch(rows[inside], offsets, cell[inside], utility[inside], merit[first:last])


class _EndlessOrder:
    """All impressions in a random order, then all again in another, and so on."""

    def __init__(self, impressions: int, seed: int) -> None:
        self.impressions = impressions
        self.seed = seed
        self.epoch, self.order = -1, np.empty(0, np.int64)

    def between(self, first: int, last: int) -> Numbers:
        """Return what stands at places first, ..., last - 1."""
        epochs = range(first // self.impressions, -(-last // self.impressions))
        orders = np.concatenate([self._of_epoch(epoch) for epoch in epochs])
        start = epochs.start * self.impressions
        return orders[first - start : last - start]

    def _of_epoch(self, epoch: int) -> Numbers:
        if epoch != self.epoch:
            rng = np.random.default_rng([self.seed, ORDER_OF_EPOCH, epoch])
            self.epoch, self.order = epoch, rng.permutation(self.impressions)
        return self.order


def _counted_apart(log: ClickLog) -> Counts:
    """Return the counts of each impression by itself: a list of its own, whose rows are its entries."""
    own = RankingDataset(
        np.empty((log.entries, 0), dtype=np.float32),
        log.offsets,
        group=log.data.group[log.row_of_entry],
        group_names=log.data.group_names,
    )
    shown = np.flatnonzero(log.position != NOT_SHOWN)
    cells = Cells(
        row=shown,
        position=log.position[shown],
        propensity=None if log.propensity is None else log.propensity[shown],
        impressions=np.ones(shown.size, dtype=np.int64),
        clicks=log.click[shown].astype(np.int64),
    )
    return Counts(
        own,
        impressions=np.ones(len(log), dtype=np.int64),
        clicked_impressions=log.clicked.astype(np.int64),
        cells=cells,
        planted=cells[shown[:0]],
        position_bias=log.position_bias,
        empties_dropped=log.empties_dropped,
    )


class BatchScorer(Protocol):
    """The scores of some rows, and what slopes of the scores mean for the parameters."""

    def scores(self, parameters: Array, rows: Numbers) -> Array:
        """Return the score of each row."""
        ...

    def pull_back(self, slopes: Array) -> Array:
        """Return sum_rows slopes d score / d parameter, for the rows and parameters that were scored last."""
        ...


def batch_scorer(model: Model, data: RankingDataset) -> BatchScorer:
    """Return the scorers of a model for batches of the rows of some data.

    A batch is so small that what torch does around its arithmetic takes longer than the arithmetic, and far
    longer on several threads; so the paper's own scorers do without torch.
    """
    if isinstance(model, LinearModel):
        return _LinearRows(model, data)
    if isinstance(model, ModuleModel):
        module = model.module
        if type(module) is MLPScorer and all(parameter.requires_grad for parameter in module.parameters()):
            return _NetworkRows(model, module, data)
        return _ModuleRows(model, data)
    raise InputError("must be a LinearModel or a ModuleModel", column="model", value=type(model).__name__)


class _LinearRows:
    def __init__(self, model: LinearModel, data: RankingDataset) -> None:
        self.features, self.scaling = data.features, model.scaling
        self.factor = _visible(1 / model.scaling.divisor, model)
        self._taken = self.features[:0]

    def scores(self, parameters: Array, rows: Numbers) -> Array:
        self._taken = self.scaling.rows(torch.from_numpy(self.features[rows])).numpy()
        effective = (parameters * self.factor).astype(np.float32)
        return np.asarray((self._taken @ effective).astype(np.float64))

    def pull_back(self, slopes: Array) -> Array:
        return np.asarray((slopes.astype(np.float32) @ self._taken) * self.factor)


class _NetworkRows:
    """w ReLU(... ReLU(W_1 x + b_1) ...), parameters in the order W_1, b_1, ..., w."""

    def __init__(self, model: ModuleModel, network: MLPScorer, data: RankingDataset) -> None:
        self.features = data.features
        factor = _visible(1 / model.scaling.scale.astype(np.float64), model)
        self.mean, self.factor = model.scaling.mean, factor.astype(np.float32)
        self.widths = (network.features, *network.hidden)
        self._layers: list[NDArray[np.float32]] = []
        self._values: list[NDArray[np.float32]] = []

    def scores(self, parameters: Array, rows: Numbers) -> Array:
        left = parameters.astype(np.float32)
        values = (self.features[rows] - self.mean) * self.factor
        self._layers, self._values = [], [values]
        for before, width in pairwise(self.widths):
            weight, bias, left = np.split(left, [before * width, (before + 1) * width])
            self._layers.append(weight.reshape(width, before))
            values = np.maximum(values @ self._layers[-1].T + bias, 0)
            self._values.append(values)
        self._layers.append(left)
        return np.asarray((values @ left).astype(np.float64))

    def pull_back(self, slopes: Array) -> Array:
        by_score = slopes.astype(np.float32)
        gradient = [by_score @ self._values[-1]]
        by_value = np.outer(by_score, self._layers[-1])
        for number in range(len(self._layers) - 2, -1, -1):
            by_value *= self._values[number + 1] > 0
            gradient = [(by_value.T @ self._values[number]).reshape(-1), by_value.sum(axis=0), *gradient]
            if number:
                by_value = by_value @ self._layers[number]
        return np.concatenate(gradient, dtype=np.float64)


class _ModuleRows:
    def __init__(self, model: ModuleModel, data: RankingDataset) -> None:
        self.features = data.features
        # a copy, since the model's own module takes other parameters at each validation
        self.network = model.scorer(model.initial(0)).eval()
        for mine, given in zip(self.network.parameters(), model.network.parameters(), strict=True):
            mine.requires_grad_(given.requires_grad)
        self.trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self._scores: Tensor = torch.empty(0)

    def scores(self, parameters: Array, rows: Numbers) -> Array:
        fill_parameters(self.trained, parameters)
        self._scores = self.network(torch.from_numpy(self.features[rows]))
        return np.asarray(self._scores.detach().numpy().astype(np.float64))

    def pull_back(self, slopes: Array) -> Array:
        given = torch.from_numpy(slopes).to(self._scores)
        gradients = torch.autograd.grad(self._scores, self.trained, given, materialize_grads=True)
        return np.concatenate([gradient.numpy().reshape(-1) for gradient in gradients], dtype=np.float64)


def _visible(factor: Array, model: Model) -> Array:
    """Return what each feature is multiplied by, with 0 for those that are hidden."""
    factor[list(model.blind)] = 0.0
    return factor
