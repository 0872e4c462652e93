"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from fultr import DataSplits, datasets

settings.register_profile("fultr", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("fultr")

LONGEST_FIRST = (
    "test_reproduction.py",
    "test_documentation.py",
    "test_train_command.py",
    "test_contract.py",
    "test_audit.py",
)
"""Files that take longest: on several cores, none of them should be the last and run alone."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    if config.pluginmanager.hasplugin("pytest_cov"):
        for item in items:
            # counting lines would take as long again, and a thousand repetitions run no others than one
            if item.get_closest_marker("statistical"):
                item.add_marker("no_cover")


@pytest.fixture(scope="session")
def german() -> DataSplits:
    return datasets.german_credit(seed=0)
