"""Scorers as functions of a flat vector of parameters, for one configuration or for many at once."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.policy import GroupBlind, LinearScorer, MLPScorer
from fultr.training.scaling import ScaledScorer, Scaling

Array = NDArray[np.float64]


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
