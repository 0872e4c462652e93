"""The German Credit table: 1000 loan applicants as the UCI file holds them, and as features."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

ATTRIBUTES = (
    "checking_status",
    "duration",
    "credit_history",
    "purpose",
    "credit_amount",
    "savings",
    "employment",
    "installment_rate",
    "personal_status_sex",
    "other_debtors",
    "residence_since",
    "property",
    "age",
    "other_installment_plans",
    "housing",
    "existing_credits",
    "job",
    "dependents",
    "telephone",
    "foreign_worker",
)
"""The attributes of the file, in its order, named after the UCI documentation."""

NUMERIC = frozenset(
    {
        "duration",
        "credit_amount",
        "installment_rate",
        "residence_since",
        "age",
        "existing_credits",
        "dependents",
    }
)


@dataclass(frozen=True)
class Applicants:
    """The applicants in the order of the file: their attributes and whether they are creditworthy."""

    numbers: dict[str, NDArray[np.float64]]
    codes: dict[str, NDArray[np.str_]]
    creditworthy: NDArray[np.bool_]

    def values_of(self, attribute: str) -> list[str]:
        """Return the codes that occur in a categorical attribute, A5 before A10."""
        codes = {str(code) for code in self.codes[attribute]}
        return sorted(codes, key=lambda code: [int(digits) for digits in re.findall(r"\d+", code)])


@cache
def read_applicants() -> Applicants:
    """Read the file that comes with the package."""
    file = resources.files("fultr.datasets") / "german_credit_data" / "german.data"
    table = np.array([line.split() for line in file.read_text(encoding="ascii").splitlines()])
    columns = {name: table[:, number] for number, name in enumerate(ATTRIBUTES)}
    return Applicants(
        numbers={name: columns[name].astype(np.float64) for name in ATTRIBUTES if name in NUMERIC},
        codes={name: columns[name] for name in ATTRIBUTES if name not in NUMERIC},
        creditworthy=table[:, -1] == "1",
    )


def feature_columns(applicants: Applicants) -> dict[str, list[str]]:
    """Return the names of the feature columns that come from each attribute."""
    return {
        name: [name] if name in NUMERIC else [f"{name}:{code}" for code in applicants.values_of(name)]
        for name in ATTRIBUTES
    }


def features_of(applicants: Applicants, training: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the features of all applicants: one column for each code, numbers scaled.

    Numbers are centred at the median of the training applicants and divided by their interquartile range.
    """
    columns: list[NDArray[np.float64]] = []
    for name in ATTRIBUTES:
        if name in NUMERIC:
            columns.append(_scaled(applicants.numbers[name], training))
        else:
            columns += [applicants.codes[name] == code for code in applicants.values_of(name)]
    return np.column_stack(columns).astype(np.float32)


def _scaled(values: NDArray[np.float64], training: NDArray[np.int64]) -> NDArray[np.float64]:
    low, middle, high = np.quantile(values[training], [0.25, 0.5, 0.75])
    # most applicants have one dependent: a range of 0 says nothing about the few that differ
    scale = float(high - low) or float(values[training].std()) or 1.0
    return (values - float(middle)) / scale
