"""Groups of the German Credit applicants, as a short text describes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fultr.datasets.arguments import known_names
from fultr.datasets.german_table import ATTRIBUTES, NUMERIC, Applicants
from fultr.datasets.interval_groups import interval_codes, interval_names
from fultr.errors import InputError

YOUNG = "25"
"""Where "age" alone is cut: up to 25 counts as young in the fairness literature on this data."""

FEMALE = ("A92", "A95")


@dataclass(frozen=True)
class ApplicantGroups:
    """The group of each applicant, the groups' names, and the attribute that they come from."""

    code: NDArray[np.int32]
    names: tuple[str, ...]
    attribute: str


def groups_of(applicants: Applicants, group: str) -> ApplicantGroups:
    """Divide the applicants as `group` says; see `german_credit` for what it may be."""
    if not isinstance(group, str):
        raise InputError('must be a text such as "purpose:A43"', column="group", value=group)
    attribute, colon, rest = group.partition(":")
    if attribute == "sex" and not colon:
        status = applicants.codes["personal_status_sex"]
        return _groups(np.isin(status, FEMALE), ("male", "female"), "personal_status_sex")
    if attribute == "foreign_worker" and not colon:
        worker = applicants.codes["foreign_worker"]
        return _groups(worker == "A202", ("foreign worker", "not a foreign worker"), attribute)
    if attribute not in ATTRIBUTES:
        problem = f"no such attribute; {known_names(attribute, [*ATTRIBUTES, 'sex'])}"
        raise InputError(problem, column="group", value=group)
    values = [value.strip() for value in rest.split(",")] if colon else []
    if attribute in NUMERIC:
        return _bands(applicants, attribute, values or ([YOUNG] if attribute == "age" else []), group)
    if not values:
        return _each_value(applicants, attribute)
    return _values_against_the_rest(applicants, attribute, values, group)


def _groups(code: NDArray[np.generic], names: tuple[str, ...], attribute: str) -> ApplicantGroups:
    return ApplicantGroups(code.astype(np.int32), names, attribute)


def _each_value(applicants: Applicants, attribute: str) -> ApplicantGroups:
    values = applicants.values_of(attribute)
    number = {value: code for code, value in enumerate(values)}
    code = np.array([number[str(value)] for value in applicants.codes[attribute]])
    return _groups(code, tuple(f"{attribute}:{value}" for value in values), attribute)


def _values_against_the_rest(
    applicants: Applicants, attribute: str, values: list[str], group: str
) -> ApplicantGroups:
    existing = applicants.values_of(attribute)
    for value in values:
        if value not in existing:
            problem = f"no applicant has {attribute} '{value}'; {known_names(value, existing)}"
            raise InputError(problem, column="group", value=group)
    rest = ~np.isin(applicants.codes[attribute], values)
    if not rest.any():
        problem = f"these are all values of {attribute}: no applicant is left for the other group"
        raise InputError(problem, column="group", value=group)
    return _groups(rest, (f"{attribute}:{','.join(values)}", "other"), attribute)


def _bands(applicants: Applicants, attribute: str, values: list[str], group: str) -> ApplicantGroups:
    if not values:
        problem = f"{attribute} is a number: say where to cut it, as in {attribute}:2 or age:30,50"
        raise InputError(problem, column="group", value=group)
    try:
        cuts = np.array([float(value) for value in values])
    except ValueError:
        raise InputError(f"{attribute} must be cut at numbers", column="group", value=group) from None
    numbers = applicants.numbers[attribute]
    if not np.all(np.diff(cuts) > 0) or not np.all(np.isfinite(cuts)):
        raise InputError("the numbers to cut at must increase", column="group", value=group)
    code, names = interval_codes(numbers, cuts), interval_names(attribute, cuts)
    missing = sorted(set(range(len(names))) - set(code.tolist()))
    if missing:
        problem = f"no applicant has {names[missing[0]]}: it runs from {numbers.min():g} to {numbers.max():g}"
        raise InputError(problem, column="group", value=group)
    return _groups(code, names, attribute)
