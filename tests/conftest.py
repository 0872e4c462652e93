"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from fultr import DataSplits, datasets

settings.register_profile("fultr", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("fultr")


@pytest.fixture(scope="session")
def german() -> DataSplits:
    return datasets.german_credit(seed=0)
