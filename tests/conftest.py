"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from fultr import DataSplits, datasets

settings.register_profile("fultr", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("fultr")


@pytest.fixture(scope="session")
def german() -> DataSplits:
    return datasets.german_credit(seed=0)


@pytest.fixture(scope="session")
def mslr_folder() -> Path:
    folder = os.environ.get("FULTR_MSLR")
    if not folder:
        pytest.skip(
            "set FULTR_MSLR to a folder with Microsoft's MSLR (Fold1/train.txt, ...) to run this test"
        )
    return Path(folder)
