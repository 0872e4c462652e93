"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from fultr import DataSplits, datasets

settings.register_profile("fultr", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("fultr")

LONGEST_FIRST = ("test_reproduction.py", "test_train_command.py")
"""Files that take minutes: on several cores, none of them should be the last and run alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST_FIRST)


@pytest.fixture(scope="session")
def german() -> DataSplits:
    return datasets.german_credit(seed=0)
