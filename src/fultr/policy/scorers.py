"""Scorers: torch modules from the features of items to their scores, and the policy that follows from one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.expectation.race import check_scores
from fultr.policy.policies import ScoredPolicy

MOST_PARAMETERS = 100_000_000
"""Parameters of the largest network: training keeps twenty times as many numbers beside them."""

ROWS_A_BLOCK = 16_384
"""Rows scored together by `TorchPolicy`, so that memory does not grow with the data."""


class LinearScorer(nn.Module):
    """Score an item by a weighted sum of its features, h(x) = w x.

    There is no bias: a constant added to all scores of a list changes no ranking.

    Parameters
    ----------
    features
        Number of features.
    spread
        Standard deviation of the initial weights. With 0, the default, training starts from random rankings.
    seed
        Decides the initial weights; torch's global random state is left alone.
    """

    def __init__(self, features: int, *, spread: float = 0.0, seed: int | torch.Generator = 0) -> None:
        super().__init__()
        self.features = _positive(features, "features")
        if not (spread >= 0 and math.isfinite(spread)):
            raise InputError("must be 0 or more", column="spread", value=spread)
        self.weight = nn.Parameter(torch.randn(features, generator=_generator(seed)) * spread)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (...), of items with the given features, (..., d)."""
        _check_width(features, self.features)
        return features @ self.weight

    def extra_repr(self) -> str:
        """Return what `repr` shows between the brackets."""
        return f"{self.features}"


class MLPScorer(nn.Module):
    """Score an item by a feed-forward network, h(x) = w ReLU(... ReLU(W_1 x + b_1) ...).

    The last layer has no bias: a constant added to all scores of a list changes no ranking.

    Parameters
    ----------
    features
        Number of features.
    hidden
        Width of each hidden layer; the paper has one.
    seed
        Decides the initial weights; torch's global random state is left alone.
    """

    def __init__(
        self, features: int, hidden: Sequence[int] = (64,), *, seed: int | torch.Generator = 0
    ) -> None:
        super().__init__()
        self.features = _positive(features, "features")
        self.hidden = tuple(_positive(width, "hidden") for width in hidden)
        if not self.hidden:
            raise InputError("needs at least one hidden layer; take LinearScorer for none", column="hidden")
        widths = (self.features, *self.hidden, 1)
        parameters = sum((before + 1) * width for before, width in pairwise(widths))
        if parameters > MOST_PARAMETERS:
            problem = f"the network would have {parameters:,} parameters, more than {MOST_PARAMETERS:,}"
            raise InputError(problem, column="hidden", value=list(self.hidden))
        generator = _generator(seed)
        layers: list[nn.Module] = []
        before = features
        for width in self.hidden:
            layers += [_linear_layer(before, width, generator), nn.ReLU()]
            before = width
        self.layers = nn.Sequential(*layers, _linear_layer(before, 1, generator, bias=False))

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (...), of items with the given features, (..., d)."""
        _check_width(features, self.features)
        scores: Tensor = self.layers(features)
        return scores.squeeze(-1)


class GroupBlind(nn.Module):
    """Hide from a scorer all columns derived from the group attribute: it sees 0 in their place.

    Whatever these columns hold, the scores are the same and the gradient with respect to them is 0.

    Parameters
    ----------
    scorer
        Any module from features to scores.
    columns
        The columns to hide, from 0: `RankingDataset.group_columns`.
    """

    def __init__(self, scorer: nn.Module, columns: Sequence[int]) -> None:
        super().__init__()
        self.scorer = scorer
        self.columns = tuple(sorted({int(column) for column in columns}))
        if self.columns and self.columns[0] < 0:
            raise InputError("must be 0 or more", column="columns", value=self.columns)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of items with the given features, (..., d), as the scorer shapes them."""
        width = features.shape[-1] if features.ndim else 0
        if self.columns and self.columns[-1] >= width:
            problem = f"column {self.columns[-1]} is to be hidden, but there are not so many"
            raise InputError(problem, column="features", value=width)
        hidden = torch.tensor(self.columns, dtype=torch.int64, device=features.device)
        # filled, not multiplied by 0: a hidden NaN must not show either
        scores: Tensor = self.scorer(features.index_fill(-1, hidden, 0.0))
        return scores

    def extra_repr(self) -> str:
        """Return what `repr` shows before the scorer."""
        return f"columns={self.columns}"


class TorchPolicy(ScoredPolicy):
    """Rank by the scores of a torch module.

    Parameters
    ----------
    module
        From features (rows x d) to scores, (rows) or (rows x 1). It must score each row on its own: rows come
        in blocks that have nothing to do with lists.
    stochastic
        Whether rankings are drawn from the Plackett-Luce model of the scores, or always follow the descending
        scores.
    rows_a_block
        Rows scored together.
    """

    def __init__(
        self, module: nn.Module, stochastic: bool = True, *, rows_a_block: int = ROWS_A_BLOCK
    ) -> None:
        self.module = module
        self.stochastic = stochastic
        self.rows_a_block = _positive(rows_a_block, "rows_a_block")

    def predict(self, data: RankingDataset) -> NDArray[np.float64]:
        """Return the score of each row, the module being in evaluation mode meanwhile."""
        scores = np.empty(data.rows, dtype=np.float64)
        like = next(
            (value for value in self.module.parameters() if value.is_floating_point()), torch.empty(0)
        )
        with _evaluating(self.module), torch.no_grad():
            for start in range(0, data.rows, self.rows_a_block):
                rows = slice(start, min(start + self.rows_a_block, data.rows))
                # a copy of the block: features of memory-mapped files cannot be written, of which torch warns
                block = torch.tensor(data.features[rows]).to(like.device, like.dtype)
                scores[rows] = self._scores_of(block)
        check_scores(scores)
        return scores

    def _scores_of(self, block: Tensor) -> NDArray[np.float64]:
        try:
            scores = self.module(block)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:  # what torch raises for shapes that do not fit
            problem = f"the module cannot score rows of {block.shape[1]} features: {error}"
            raise InputError(problem, column="features") from error
        rows = block.shape[0]
        if not isinstance(scores, Tensor) or scores.shape not in ((rows,), (rows, 1)):
            problem = f"a module must return one score for each of {rows} rows"
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise InputError(problem, column="module", value=got)
        return scores.reshape(rows).to("cpu", torch.float64).numpy()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.module).__name__}, stochastic={self.stochastic})"


def _generator(seed: int | torch.Generator) -> torch.Generator:
    return seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)


def _linear_layer(inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = True) -> nn.Linear:
    """Make a layer with all parameters uniform in +-1/sqrt(inputs), as torch does, but from a generator."""
    # made without memory first, because torch would draw initial weights from its global random state
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")
    limit = 1 / math.sqrt(inputs)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-limit, limit, generator=generator)
    return layer


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode, and each of its parts back into its own mode afterwards."""
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for submodule, training in modes:
            submodule.training = training


def _positive(number: int, name: str) -> int:
    if number < 1:
        raise InputError("must be 1 or more", column=name, value=number)
    return int(number)


def _check_width(features: Tensor, wanted: int) -> None:
    width = features.shape[-1] if features.ndim else 0
    if width != wanted:
        raise InputError(f"the scorer takes {wanted} features", column="features", value=width)


class Shifted(nn.Module):
    """A scorer with a constant added, which matters where a score means something by itself."""

    def __init__(self, scorer: nn.Module, constant: float = 0.0) -> None:
        super().__init__()
        self.scorer = scorer
        self.constant = nn.Parameter(torch.tensor(float(constant)))

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores, (...), of items with the given features, (..., d)."""
        scores: Tensor = self.scorer(features)
        return scores + self.constant


class Probability(nn.Module):
    """The sigmoid of a scorer's scores, in double precision, where it is 0 or 1 later than in single."""

    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, features: Tensor) -> Tensor:
        """Return the probabilities, (...), of items with the given features, (..., d)."""
        scores: Tensor = self.scorer(features)
        return torch.sigmoid(scores.double())
