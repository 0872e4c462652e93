"""Scorers as functions of a flat vector of parameters, for one configuration or for many at once."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.policy import GroupBlind, LinearScorer, MLPScorer

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scaling:
    """How features are brought to a common scale: (x - mean) / scale.

    Computed from the training rows, and kept with the policy.
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]

    @classmethod
    def standard(cls, data: RankingDataset) -> Scaling:
        """Take the mean and the standard deviation of each column; constant columns are left as they are."""
        features = data.features
        mean = features.mean(axis=0, dtype=np.float64)
        # in blocks, so that no second copy of the features is made
        squares = np.zeros(features.shape[1])
        for start in range(0, data.rows, ROWS_A_BLOCK):
            squares += ((features[start : start + ROWS_A_BLOCK] - mean) ** 2).sum(axis=0)
        deviation = np.sqrt(squares / max(data.rows, 1))
        # what differs by less than the rounding of float32 does not differ
        constant = deviation <= np.maximum(1e-7 * np.abs(mean), np.finfo(np.float32).tiny)
        return cls(mean.astype(np.float32), np.where(constant, 1.0, deviation).astype(np.float32))

    def is_needless(self, data: RankingDataset) -> bool:
        """Whether all features are on a common scale as they are: neither large, nor small in every row."""
        sizes = np.abs(np.concatenate([self.mean, self.scale]))
        if not data.rows or sizes.max(initial=0.0) > LARGEST_SCALE:
            return not data.rows
        features, mean = data.features, self.mean.astype(np.float64)
        reach = np.maximum(features.max(axis=0) - mean, mean - features.min(axis=0))
        # not the deviation: scaled, a column that is rarely other than 0 would weigh as much as the rest
        varies = reach >= self.scale * (1 - ROUNDING)
        return bool((reach[varies] >= SMALLEST_REACH).all())

    @cached_property
    def comes_first(self) -> bool:
        """Whether features are scaled before they are multiplied by parameters, and not the parameters.

        Parameters are fewer. But in products of float32 a large mean drowns what differs, and extreme units
        leave the range of their numbers.
        """
        far = np.abs(self.mean) > FAR_FROM_ZERO * self.scale
        return bool((far | (self.scale < 1 / EXTREME_SCALE) | (self.scale > EXTREME_SCALE)).any())

    def rows(self, features: Tensor) -> Tensor:
        """Return features as parameters over `divisor` multiply them, up to the same constant in each row."""
        if not self.comes_first:
            return features
        return (features - torch.from_numpy(self.mean)) / torch.from_numpy(self.scale)

    @property
    def divisor(self) -> Array:
        """What parameters are divided by before they are multiplied by `rows`."""
        return np.ones(self.scale.size) if self.comes_first else self.scale.astype(np.float64)

    @classmethod
    def none(cls, data: RankingDataset) -> Scaling:
        """Take features as they are."""
        width = data.features.shape[1]
        return cls(np.zeros(width, np.float32), np.ones(width, np.float32))

    @classmethod
    def wanted(cls, data: RankingDataset, scale: bool | None) -> Scaling:
        """Scale features, or not; None scales all where the scale of any is far from 1."""
        if scale is False:
            return cls.none(data)
        standard = cls.standard(data)
        return cls.none(data) if scale is None and standard.is_needless(data) else standard


class ScaledScorer(nn.Module):
    """A scorer of features that are scaled first: what a trained policy consists of.

    Scores are divided by the temperature: the lower it is, the less rankings vary.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, scorer: nn.Module, scaling: Scaling, temperature: float = 1.0) -> None:
        super().__init__()
        self.scorer = scorer
        self.temperature = temperature
        self.register_buffer("mean", torch.from_numpy(scaling.mean.copy()))
        self.register_buffer("scale", torch.from_numpy(scaling.scale.copy()))
        self.scaled = bool(scaling.mean.any() or (scaling.scale != 1).any())

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (rows), of items with the given features, (rows, d)."""
        scores: Tensor = self.scorer((features - self.mean) / self.scale if self.scaled else features)
        return scores.reshape(features.shape[:-1]) / self.temperature


class Scores(ABC):
    """Scores of the rows of one dataset, as a function of a vector of parameters."""

    together: bool
    """Whether the scores of many configurations come at the price of few."""

    entries_a_block: int
    """Scores (rows times configurations) to be worked on together, for tens of megabytes of work."""

    most_iterations: int
    """Steps of training after which what more would gain is not worth its time."""

    is_most_useful: bool = False
    """Whether the initial parameters are those of the most useful policy already."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of parameters."""

    @property
    @abstractmethod
    def content(self) -> list[Any]:
        """All that scores depend on besides the parameters and the features."""

    @abstractmethod
    def initial(self, seed: int) -> Array:
        """Return the parameters from which training starts."""

    @abstractmethod
    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (configurations, rows)."""

    @abstractmethod
    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return sum_rows slopes d score / d parameter, (configurations, parameters)."""

    def trace(self, parameters: Array, rows: slice) -> tuple[NDArray[np.float32], Callable[[Array], Array]]:
        """Return the scores of some rows, and what pulls slopes back from them to the parameters."""
        return self.scores(parameters, rows), lambda slopes: self.pull_back(parameters, rows, slopes)


class Model(Scores):
    """A family of scorers, functions of features, on the rows of one dataset."""

    def __init__(self, data: RankingDataset, scaling: Scaling, hidden: tuple[int, ...] = ()) -> None:
        self.data = data
        self.scaling = scaling
        self.blind = tuple(hidden)
        # read-only features (of a memory-mapped file) are never written to, but torch would warn
        features = data.features if data.features.flags.writeable else data.features.copy()
        self.features = torch.from_numpy(np.ascontiguousarray(features))

    @property
    def content(self) -> list[Any]:
        """All that scores depend on besides the parameters and the features."""
        return [type(self).__name__, self.scaling, list(self.blind)]

    @abstractmethod
    def scorer(self, parameters: Array) -> ScaledScorer:
        """Return the scorer of one configuration."""

    def on(self, data: RankingDataset) -> Self:
        """Return the same family on the rows of other data."""
        other = copy.copy(self)
        Model.__init__(other, data, self.scaling, self.blind)
        return other


class LinearModel(Model):
    """h(x) = w (x - mean) / scale; the mean shifts all scores alike, so that training can do without it."""

    together = True
    entries_a_block = 1 << 19
    most_iterations = 300

    @property
    def size(self) -> int:
        """Number of features."""
        return int(self.features.shape[1])

    def initial(self, seed: int) -> Array:
        """Return zeros: training starts from random rankings."""
        del seed
        return np.zeros(self.size)

    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (configurations, rows)."""
        effective = torch.from_numpy((parameters / self._divisor()).astype(np.float32))
        return np.ascontiguousarray((self._rows(rows) @ effective.T).numpy().T)

    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return sum_rows slopes x / scale, (configurations, features)."""
        del parameters  # a linear score has the same slope everywhere
        given = torch.from_numpy(slopes.astype(np.float32))
        return np.asarray((given @ self._rows(rows)).numpy().astype(np.float64) / self._divisor())

    def _rows(self, rows: slice) -> Tensor:
        return self.scaling.rows(self.features[rows])

    def _divisor(self) -> Array:
        divisor = self.scaling.divisor
        divisor[list(self.blind)] = np.inf
        return divisor

    def scorer(self, parameters: Array) -> ScaledScorer:
        """Return the scorer of one configuration."""
        linear = with_columns_hidden(self.of_scaled(parameters), self.blind)
        return ScaledScorer(linear, self.scaling).requires_grad_(False)

    def of_scaled(self, parameters: Array) -> LinearScorer:
        """Return the scorer of scaled features, none of them hidden."""
        linear = LinearScorer(self.size)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(parameters))
        return linear


class CentredModel(Scores):
    """Scorers around a trained one: h(x; theta + T delta) / T, whose parameters are delta.

    At delta = 0 it is the trained scorer at temperature T. The cost of large parameters is then one of moving
    away from it, and no longer flattens the policy.

    Parameters
    ----------
    model
        The family of scorers.
    centre
        theta.
    temperature
        T.
    """

    is_most_useful = True

    def __init__(self, model: Model, centre: Array, temperature: float) -> None:
        self.model, self.centre, self.temperature = model, centre, temperature
        self.together = model.together
        self.entries_a_block = model.entries_a_block
        self.most_iterations = model.most_iterations

    @property
    def size(self) -> int:
        """Number of parameters of the model."""
        return self.model.size

    def initial(self, seed: int) -> Array:
        """Return zeros: the trained scorer."""
        del seed
        return np.zeros(self.size)

    @property
    def content(self) -> list[Any]:
        """All that scores depend on besides the parameters and the features."""
        return [*self.model.content, self.centre, self.temperature]

    def moved(self, parameters: Array) -> Array:
        """Return the parameters of the model, theta + T delta."""
        return np.asarray(self.centre + self.temperature * parameters)

    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (configurations, rows)."""
        return self.model.scores(self.moved(parameters), rows) / np.float32(self.temperature)

    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return sum_rows slopes d score / d delta; the two temperatures cancel."""
        return self.model.pull_back(self.moved(parameters), rows, slopes)

    def trace(self, parameters: Array, rows: slice) -> tuple[NDArray[np.float32], Callable[[Array], Array]]:
        """Return the scores of some rows, and what pulls slopes back from them to delta."""
        scores, pull_back = self.model.trace(self.moved(parameters), rows)
        return scores / np.float32(self.temperature), pull_back

    def on(self, data: RankingDataset) -> CentredModel:
        """Return the same scorers on the rows of other data."""
        return CentredModel(self.model.on(data), self.centre, self.temperature)

    def scorer(self, parameters: Array) -> ScaledScorer:
        """Return the scorer of one configuration."""
        scorer = self.model.scorer(self.moved(parameters))
        scorer.temperature = self.temperature
        return scorer


class ModuleModel(Model):
    """Any torch module from features to scores, one configuration at a time."""

    together = False
    entries_a_block = 1 << 15
    most_iterations = 100

    def __init__(
        self, data: RankingDataset, scaling: Scaling, module: nn.Module, hidden: tuple[int, ...] = ()
    ) -> None:
        super().__init__(data, scaling, hidden)
        self.module = copy.deepcopy(module)
        # without dropout and the like: the objective is one function of the parameters
        self.network = ScaledScorer(with_columns_hidden(self.module, self.blind), scaling).eval()
        if not self.size:
            raise InputError("the module has no parameters to train", column="model")
        self._try_out()

    def _try_out(self) -> None:
        """Refuse a module that cannot score the rows, before any training."""
        rows = self.features[:2]
        try:
            with torch.no_grad():
                self.network(rows)
        except RuntimeError as error:  # what torch raises for shapes and types that do not fit
            problem = f"the module must give one score to each row of {rows.shape[1]} features: {error}"
            raise InputError(problem, column="model") from error

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.trained)

    @property
    def content(self) -> list[Any]:
        """All that scores depend on besides the parameters and the features."""
        fixed = {name: value for name, value in self.module.state_dict().items() if name in self._fixed}
        return [*super().content, repr(self.module), fixed]

    @property
    def _fixed(self) -> set[str]:
        """Names of what a module holds that is not trained."""
        trained = {name for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        return set(self.module.state_dict()) - trained

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are trained."""
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def initial(self, seed: int) -> Array:
        """Return the parameters that the module came with; a network of our own is drawn anew for a seed."""
        if isinstance(self.module, MLPScorer):
            drawn = MLPScorer(self.module.features, self.module.hidden, seed=seed)
            return _flat(list(drawn.parameters()))
        return _flat(self.trained)

    def scores(self, parameters: Array, rows: slice) -> NDArray[np.float32]:
        """Return the scores of some rows, (1, rows)."""
        self._take(parameters)
        with torch.no_grad():
            return np.asarray(self.network(self.features[rows]).to(torch.float32).numpy()[None])

    def pull_back(self, parameters: Array, rows: slice, slopes: Array) -> Array:
        """Return sum_rows slopes d score / d parameter, (1, parameters)."""
        return self.trace(parameters, rows)[1](slopes)

    def trace(self, parameters: Array, rows: slice) -> tuple[NDArray[np.float32], Callable[[Array], Array]]:
        """Return the scores of some rows, and what pulls slopes back; the network is run once for both."""
        self._take(parameters)
        scores = self.network(self.features[rows])

        def pull_back(slopes: Array) -> Array:
            given = torch.from_numpy(slopes[0]).to(scores)
            gradients = torch.autograd.grad(scores, self.trained, given, allow_unused=True)
            known = [
                torch.zeros_like(parameter) if gradient is None else gradient
                for parameter, gradient in zip(self.trained, gradients, strict=True)
            ]
            return _flat(known)[None]

        return np.asarray(scores.detach().to(torch.float32).numpy()[None]), pull_back

    def _take(self, parameters: Array) -> None:
        fill_parameters(self.trained, parameters.reshape(-1))

    def scorer(self, parameters: Array) -> ScaledScorer:
        """Return the scorer of one configuration."""
        self._take(parameters)
        return copy.deepcopy(self.network).requires_grad_(False)


def fill_parameters(parameters: list[nn.Parameter], values: Array) -> None:
    """Set parameters from one vector."""
    start = 0
    with torch.no_grad():
        for parameter in parameters:
            stop = start + parameter.numel()
            parameter.copy_(torch.from_numpy(values[start:stop]).reshape(parameter.shape))
            start = stop


def _flat(tensors: list[Tensor] | list[nn.Parameter]) -> Array:
    return np.concatenate([tensor.detach().double().reshape(-1).numpy() for tensor in tensors])


def with_columns_hidden(scorer: nn.Module, columns: tuple[int, ...]) -> nn.Module:
    """Hide columns, if there are any to hide, from a scorer."""
    return GroupBlind(scorer, columns) if columns else scorer


FAR_FROM_ZERO = 10.0
"""Deviations from 0, as many as the mean of a feature may be without being taken off."""

LARGEST_SCALE, SMALLEST_REACH = 10.0, 0.1
"""Features are taken as they are if all their means and deviations are below the one, and each is in some row
at least the other away from its mean."""

EXTREME_SCALE = 1e10
"""Units beyond this, or below its reciprocal, leave too little of the range of float32 to products."""

ROUNDING = 1e-5
"""Relative errors of float32, with something to spare."""

ROWS_A_BLOCK = 1 << 16
"""Rows looked at together."""
