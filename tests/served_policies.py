"""Small policies for tests of the service, written without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.training.policy_files import write_policy_file

FEATURES = ("salary", "distance", "age")


def linear_policy(
    path: Path, weight: Sequence[float] = (1.0, -0.5, 0.2), features: Sequence[str] = FEATURES, **content: Any
) -> Path:
    """Write a linear policy."""
    width = len(features)
    tensors: dict[str, NDArray[Any]] = {
        "scaling.mean": np.zeros(width, np.float32),
        "scaling.scale": np.ones(width, np.float32),
        "scorer.weight": np.array(weight, np.float32),
        "training_queries": np.zeros(0, np.int64),
    }
    about = {
        "ranker": "FairRanker",
        "model": {"kind": "linear", "features": width},
        "hidden_columns": [],
        "features": list(features),
        "groups": ["agency", "direct"],
    }
    return write_policy_file(path, tensors, {**about, **content})


def candidates(number: int = 6, seed: int = 0) -> list[dict[str, Any]]:
    """Return candidates with features by name."""
    rng = np.random.default_rng(seed)
    return [
        {
            "id": f"job-{index}",
            "group": ("agency", "direct")[index % 2],
            "features": {name: round(float(rng.normal()), 3) for name in FEATURES},
        }
        for index in range(number)
    ]
