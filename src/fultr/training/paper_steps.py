"""Steps of the paper's protocol: its settings, the direction of a step from a batch, and how far it goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import checked_number, finite_number, whole_number
from fultr.errors import InputError
from fultr.expectation.sampled import draw_rankings, reinforce_gradient, sampled_values
from fultr.training.impressions import Batch, Impressions, batch_scorer
from fultr.training.models import Model
from fultr.training.objective import softmax_entropies
from fultr.training.task import Weighing

Array = NDArray[np.float64]

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Of Adam, as in torch."""


@dataclass(frozen=True)
class PaperSettings:
    """The numbers of the protocol; the defaults are the paper's, or its authors' where the paper has none.

    Parameters
    ----------
    samples
        S, the rankings drawn of each list.
    batch_size
        Impressions in a step.
    window
        Impressions over which the disparity is averaged.
    learning_rate, momentum
        Of SGD, for linear scorers.
    adam_learning_rate
        Of Adam, for all others.
    entropy_weight, entropy_divisor
        gamma at the start, and what it is divided by at each validation without a gain.
    validate_every
        Steps between validations.
    patience
        Validations without a gain, one after another, that end training.
    most_steps
        Steps that end training in any case, which the paper does not limit.
    """

    samples: int = 32
    batch_size: int = 4
    window: int = 1_000
    learning_rate: float = 1e-3
    momentum: float = 0.9
    adam_learning_rate: float = 1e-4
    entropy_weight: float = 1.0
    entropy_divisor: float = 3.0
    validate_every: int = 3_000
    patience: int = 20
    most_steps: int = 1_000_000

    def __post_init__(self) -> None:
        checked: dict[str, int | float] = {
            name: whole_number(getattr(self, name), name, least=1)
            for name in ("samples", "batch_size", "window", "validate_every", "patience", "most_steps")
        }
        for name in ("learning_rate", "adam_learning_rate"):
            checked[name] = checked_number(
                getattr(self, name), name, "must be a number above 0", lambda given: 0 < given < np.inf
            )
        checked["momentum"] = checked_number(
            self.momentum, "momentum", "must be 0 or more, and below 1", lambda given: 0 <= given < 1
        )
        checked["entropy_weight"] = finite_number(self.entropy_weight, "entropy_weight")
        checked["entropy_divisor"] = finite_number(self.entropy_divisor, "entropy_divisor", least=1.0)
        if self.window < self.batch_size:
            problem = f"must be the batch size, {self.batch_size}, or more"
            raise InputError(problem, column="window", value=self.window)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


PAPER = PaperSettings()
"""The paper's numbers."""


class Ascent:
    """The direction of a step, whose expectation is the gradient of the objective over all impressions.

    Parameters
    ----------
    impressions
        Of the training log.
    weighing
        What a position is worth.
    model
        The scorers.
    fairness_weight, l2
        lambda, and what |parameters|^2 / 2 costs.
    samples
        Rankings drawn of each list.
    """

    def __init__(
        self,
        impressions: Impressions,
        weighing: Weighing,
        model: Model,
        fairness_weight: float,
        l2: float,
        samples: int,
    ) -> None:
        self.impressions = impressions
        self.tables = weighing.tables(int(impressions.data.lengths.max()))
        self.scorer = batch_scorer(model, impressions.data)
        self.by_utility = 1 / (1 + fairness_weight)
        self.by_squared_disparity = -fairness_weight / (1 + fairness_weight)
        self.l2 = l2
        self.samples = samples

    def direction(
        self,
        parameters: Array,
        batch: Batch,
        disparity: Array,
        entropy_weight: float,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:
        """Estimate the gradient from a batch, and the disparities, (lists, groups, groups), of its lists.

        The given `disparity` stands for that of all impressions. It must not have come from the same
        rankings: the expectation of the product would not be the product of expectations.
        """
        scores = self.scorer.scores(parameters, batch.rows)
        if not np.isfinite(scores).all():
            raise InputError("training went beyond all bounds; lower the learning rate or l2", column="score")
        order = draw_rankings(scores, batch.offsets, self.samples, rng)
        upstream = np.empty((2, scores.size))
        np.multiply(batch.utility, self.by_utility / batch.size, out=upstream[0])
        self._write_slopes_by_exposure(batch, disparity, upstream[1])
        slopes = reinforce_gradient(scores, batch.offsets, self.tables, upstream, order)
        if entropy_weight:
            slopes += entropy_weight / batch.size * softmax_entropies(scores[None], batch.offsets)[1][0]
        gradient = self.scorer.pull_back(slopes) - self.l2 * parameters
        return gradient, self._disparities(batch, sampled_values(order, batch.offsets, self.tables[1:])[0])

    def _write_slopes_by_exposure(self, batch: Batch, disparity: Array, slopes: Array) -> None:
        """Write the derivative of -lambda / (1 + lambda) sum_{i<j} 2 Dbar_ij D_ij by each row's exposure.

        For a row of group g in list q of the batch: (2 / lists) sum_j Dbar_gj M_q(G_j), times the factor.
        """
        of_cells = np.zeros((batch.size, self.impressions.groups + 1))
        factor = 2 * self.by_squared_disparity / batch.size
        np.matmul(batch.merit, factor * disparity.T, out=of_cells[:, :-1])
        np.take(of_cells, batch.cell, out=slopes)

    def _disparities(self, batch: Batch, exposure: Array) -> Array:
        """Return M_q(G_j) Exp_q(G_i) - M_q(G_i) Exp_q(G_j) for each list of the batch."""
        groups = self.impressions.groups
        cells = np.bincount(batch.cell, exposure, minlength=batch.size * (groups + 1))
        exposed = cells.reshape(batch.size, groups + 1)[:, :groups]
        products = exposed[:, :, None] * batch.merit[:, None, :]
        return np.asarray(products - products.transpose(0, 2, 1))


def move_by_momentum(parameters: Array, memory: Array, gradient: Array, settings: PaperSettings) -> None:
    """Take a step of SGD with momentum, uphill, as torch takes it."""
    velocity = memory[0]
    velocity *= settings.momentum
    velocity += gradient
    parameters += settings.learning_rate * velocity


def move_by_adam(
    parameters: Array, memory: Array, gradient: Array, step: int, settings: PaperSettings
) -> None:
    """Take a step of Adam, uphill, as torch takes it; steps count from 1."""
    mean, square = memory
    mean += (1 - BETAS[0]) * (gradient - mean)
    square += (1 - BETAS[1]) * (gradient**2 - square)
    spread = np.sqrt(square / (1 - BETAS[1] ** step)) + EPSILON
    parameters += settings.adam_learning_rate / (1 - BETAS[0] ** step) * mean / spread
