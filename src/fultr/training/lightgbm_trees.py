"""LightGBM grows trees from our gradients; what it has grown is taken over as arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.policy.lightgbm_text import trees_of_text
from fultr.policy.trees import Trees
from fultr.training.tree_settings import TreeSettings

Array = NDArray[np.float64]

LARGEST_SEED = (1 << 31) - 1

SHRINKING = 1.0
"""Rows of slope 0 that count as if they were in every leaf besides its own."""


def lightgbm() -> Any:
    """Return the library, which is needed for training alone."""
    try:
        import lightgbm
    except ImportError:
        problem = "growing trees needs LightGBM; install it with pip install 'fultr[trees]'"
        raise InputError(problem, column="model") from None
    return lightgbm


class BinnedRows:
    """The rows of a dataset, each feature cut into 255 intervals, which is what trees are grown on.

    Features that hold categories are split by sets of these.

    Parameters
    ----------
    data
        The rows.
    hidden
        Columns that trees must not split on: LightGBM never sees them.
    settings
        How trees are grown.
    """

    def __init__(self, data: RankingDataset, hidden: tuple[int, ...], settings: TreeSettings) -> None:
        self.columns = np.setdiff1d(np.arange(data.features.shape[1]), hidden)
        if not self.columns.size:
            raise InputError("there are no features to split on", column="features")
        names = [str(data.feature_names[column]) for column in self.columns]
        categorical = [number for number, name in enumerate(names) if name in data.category_names]
        self.options = _options(settings, *settings.columns_of(names, categorical))
        features = data.features[:, self.columns] if hidden else data.features
        self.dataset = (
            lightgbm()
            .Dataset(features, params=self.options, categorical_feature=categorical, free_raw_data=True)
            .construct()
        )

    def of_rows(self, kept: NDArray[np.bool_]) -> BinnedRows:
        """Return some of the rows, in the same intervals."""
        made: BinnedRows = object.__new__(BinnedRows)
        made.columns, made.options = self.columns, self.options
        made.dataset = self.dataset.subset(np.flatnonzero(kept).tolist(), params=self.options).construct()
        return made

    def grow(self, slopes: Callable[[Array], Array], rounds: int, seed: int) -> Trees:
        """Grow one tree after another along the slope of what is to be maximised.

        A round takes g = d(goal)/d(score) of each row and the same second derivative for all, the root mean
        square of g. So a leaf with the rows R moves their scores by `learning_rate` times
        sum_R g / (rms(g) (|R| + 1)): steps are of one size, whatever the unit of the goal.

        Parameters
        ----------
        slopes
            From what the trees so far add to the scores of rows to d(goal)/d(score).
        rounds
            How many trees; fewer are returned if no more splits are left to make.
        seed
            Of the rows and columns that are drawn.
        """

        def gradient(added: Array, dataset: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            del dataset
            slope = slopes(added)
            size = float(np.sqrt((slope**2).mean())) or 1.0
            return (-slope / size).astype(np.float32), np.ones(slope.size, dtype=np.float32)

        options = {**self.options, "seed": seed % LARGEST_SEED, "num_threads": torch.get_num_threads()}
        booster = lightgbm().Booster(options, self.dataset)
        for _ in range(rounds):
            if booster.update(fobj=gradient):
                break
        trees = trees_of_text(booster.model_to_string())
        return Trees(**{**trees.to_tensors(), "feature": self.columns[trees.feature]})


def _options(
    settings: TreeSettings, directions: list[int] | None, groups: list[list[int]] | None
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "objective": "none",
        "verbosity": -1,
        "num_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.min_rows,
        "min_data_per_group": settings.min_rows,
        "min_sum_hessian_in_leaf": 0.0,
        "lambda_l2": SHRINKING,
        "feature_fraction": settings.column_share,
        "bagging_fraction": settings.row_share,
        "bagging_freq": int(settings.row_share < 1),
        "feature_pre_filter": False,
        "deterministic": True,
        "force_col_wise": True,
    }
    if directions is not None:
        options |= {"monotone_constraints": directions, "monotone_constraints_method": "advanced"}
    if groups is not None:
        options["interaction_constraints"] = groups
    return options
