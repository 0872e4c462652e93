"""The recipe for German Credit: rank loan applicants so that the creditworthy come first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import whole_number
from fultr.data.dataset import DataSplits, RankingDataset
from fultr.datasets.arguments import PARTS, generator_of
from fultr.datasets.candidates import check_list_shape, draw_candidates
from fultr.datasets.german_groups import ApplicantGroups, groups_of
from fultr.datasets.german_table import Applicants, feature_columns, features_of, read_applicants
from fultr.errors import InputError


def german_credit(
    seed: int = 0,
    group: str = "purpose:A43",
    *,
    queries: int = 500,
    list_length: int = 20,
    relevant: int = 2,
) -> DataSplits:
    """Make ranking data of the German Credit applicants, as the paper does.

    The 1000 applicants are split into three equal parts, stratified by group and creditworthiness, so that
    no applicant is in two of them. A query is a list of different applicants of one part, some creditworthy
    (relevance 1) and the others not (0), in random order. The numbers among the features are scaled with
    the median and the interquartile range of the training applicants.

    Parameters
    ----------
    seed
        Decides the split and the lists.
    group
        Which groups to form:

        - ``"purpose:A43"``: applicants with that value against all others; ``"purpose:A40,A41"`` several
        - ``"purpose"``: a group for each value of a categorical attribute
        - ``"age"``: up to 25 against above; ``"age:30,50"``: bands of any numeric attribute
        - ``"sex"``: male and female, from ``personal_status_sex``
        - ``"foreign_worker"``: yes and no

        All feature columns of the attribute are `group_columns`: together, the other purposes give away
        which applicants have purpose A43.
    queries
        Lists in each of the three parts.
    list_length
        Applicants in a list.
    relevant
        Creditworthy applicants in a list.

    Returns
    -------
    DataSplits
        `doc_id` is the applicant's row in the file, from 1; query ids differ between the parts.

    Examples
    --------
    >>> data = german_credit(seed=0, group="sex", queries=5)
    >>> len(data.train), data.train.rows, int(data.train.relevance.sum()), data.train.group_names
    (5, 100, 10, ('male', 'female'))
    """
    whole_number(queries, "queries", least=1)
    check_list_shape(list_length, "list_length", relevant)
    applicants = read_applicants()
    groups = groups_of(applicants, group)
    parts = _stratified_thirds(applicants, groups, generator_of(seed, 0))
    features = features_of(applicants, parts[0])
    made = []
    for number, (part, members) in enumerate(zip(PARTS, parts, strict=True)):
        rows = _lists(applicants, members, queries, list_length, relevant, generator_of(seed, number + 1))
        query_id = np.arange(number * queries, (number + 1) * queries)
        made.append(_dataset(applicants, groups, features, rows, query_id, part))
    return DataSplits(*made)


def _stratified_thirds(
    applicants: Applicants, groups: ApplicantGroups, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Deal the applicants out like cards, one stratum after another.

    Each stratum, and all together, then differ between the parts by one applicant at most.
    """
    stratum = 2 * groups.code + applicants.creditworthy
    shuffled = generator.permutation(stratum.size)
    order = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    return [np.sort(order[start :: len(PARTS)]) for start in range(len(PARTS))]


def _lists(
    applicants: Applicants,
    members: NDArray[np.int64],
    queries: int,
    list_length: int,
    relevant: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    creditworthy = applicants.creditworthy[members]
    good, bad = members[creditworthy], members[~creditworthy]
    if good.size < relevant:
        problem = f"a part of the data has only {good.size} creditworthy applicants"
        raise InputError(problem, column="relevant", value=relevant)
    if bad.size < list_length - relevant:
        problem = (
            f"with {relevant} creditworthy applicants, a list needs {list_length - relevant} others; "
            f"a part of the data has only {bad.size}"
        )
        raise InputError(problem, column="list_length", value=list_length)
    drawn = [
        draw_candidates(good, bad, length=list_length, relevant=relevant, generator=generator)
        for _ in range(queries)
    ]
    return np.concatenate([rows for rows in drawn if rows is not None])


def _dataset(
    applicants: Applicants,
    groups: ApplicantGroups,
    features: NDArray[np.float32],
    rows: NDArray[np.int64],
    query_id: NDArray[np.int64],
    part: str,
) -> RankingDataset:
    columns = feature_columns(applicants)
    names = [name for of_attribute in columns.values() for name in of_attribute]
    return RankingDataset(
        features[rows],
        np.arange(0, rows.size + 1, rows.size // query_id.size),
        group=groups.code[rows],
        group_names=groups.names,
        relevance=applicants.creditworthy[rows],
        query_id=query_id,
        doc_id=rows + 1,
        feature_names=names,
        group_columns=[names.index(name) for name in columns[groups.attribute]],
        source=f"German Credit (UCI), {part}",
    )
