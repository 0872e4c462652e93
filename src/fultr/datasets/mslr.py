"""The recipe for Microsoft's learning-to-rank data, MSLR-WEB10K and MSLR-WEB30K."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fultr.arguments import Progress, finite_number, whole_number
from fultr.data.dataset import DataSplits, RankingDataset, concatenate, refuse_shared_queries, rows_of
from fultr.data.letor import read_letor
from fultr.datasets.arguments import generator_of
from fultr.datasets.candidates import check_list_shape, draw_candidates
from fultr.datasets.column_scaling import ColumnScaling, fit_column_scaling
from fultr.datasets.interval_groups import interval_codes, interval_names, quantile_cuts
from fultr.datasets.mslr_features import FEATURE_NAMES, GROUP_COLUMN
from fultr.errors import InputError

FILES = {"train": "train.txt", "valid": "vali.txt", "test": "test.txt"}
HOLDS = "a fold folder holds train.txt, vali.txt and test.txt"


def mslr(
    folder: str | Path,
    *,
    groups: int = 2,
    candidates: int = 20,
    relevant: int = 3,
    relevant_from: float = 3,
    lists_per_query: int = 1,
    resplit: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> DataSplits:
    """Make ranking data of a fold of MSLR, as the paper does.

    Pages judged 3 or 4 are relevant. From each query a list of candidates is drawn that holds few relevant
    pages. Queries without a relevant page, or with too few pages to fill a list, are left out; `source`
    says how many were kept. Pages are grouped by feature 133, which the paper calls QualityScore and
    Microsoft's own list of features QualityScore2.

    Everything learned from data is learned from all rows of the training part, drawn or not: the limits
    between groups, and the scaling of the features. Heavy-tailed features (kurtosis above 9, as counts of
    clicks or links have) are compressed by a logarithm, then all are brought to mean 0 and deviation 1.

    Parameters
    ----------
    folder
        A fold, with the files ``train.txt``, ``vali.txt`` and ``test.txt``, or a folder that holds `Fold1`.
    groups
        Two are divided at the 40th percentile of feature 133, more into intervals of equal size.
    candidates
        Pages in a list.
    relevant
        Relevant pages in a list; fewer where a query has fewer.
    relevant_from
        The lowest judgment that counts as relevant.
    lists_per_query
        Lists drawn from each query, independently.
    resplit
        With a number, the queries of the three files are shuffled with that seed and split anew, into
        parts with as many queries as the files have. For repeated experiments on one fold.
    seed
        Decides which candidates are drawn.
    progress
        Called for each file with how much of it has been read, and with its size.

    Returns
    -------
    DataSplits
        `doc_id` is the page's place in its query, from 1, as the files number no pages.

    Examples
    --------
    >>> data = mslr("MSLR-WEB30K", groups=5)  # doctest: +SKIP
    >>> data.train.feature_names[132], len(data.train.group_names)  # doctest: +SKIP
    ('QualityScore2', 5)
    """
    whole_number(groups, "groups", least=2)
    whole_number(lists_per_query, "lists_per_query", least=1)
    finite_number(relevant_from, "relevant_from")
    check_list_shape(candidates, "candidates", relevant)
    fold = _fold_of(Path(folder))
    parts = _read_parts(fold, progress)
    if resplit is not None:
        parts = _split_anew(parts, whole_number(resplit, "resplit"))
    recipe = _Recipe(
        candidates=candidates,
        relevant=relevant,
        relevant_from=relevant_from,
        lists_per_query=lists_per_query,
        cuts=quantile_cuts(parts[0].column(GROUP_COLUMN), groups, FEATURE_NAMES[GROUP_COLUMN]),
        scaling=fit_column_scaling(parts[0].data.features, parts[0].rows),
    )
    anew = "" if resplit is None else f" split anew with seed {resplit}"
    made = []
    for number, part in enumerate(parts):
        source = f"MSLR {fold.resolve().name}{anew}, {part.name}"
        made.append(recipe.make(part, fold, source, generator_of(seed, number)))
    return DataSplits(*made)


@dataclass(frozen=True)
class _Part:
    """Some queries of a table; the rows of the others are there too, so that none need be copied."""

    name: str
    data: RankingDataset
    queries: NDArray[np.int64]

    @property
    def rows(self) -> slice | NDArray[np.int64]:
        if self.queries.size == len(self.data):
            return slice(None)
        return rows_of(self.data.offsets, self.queries)

    def column(self, number: int) -> NDArray[np.float32]:
        return self.data.features[self.rows, number]


@dataclass(frozen=True)
class _Recipe:
    """What is done with a part, with all that was learned from the training part."""

    candidates: int
    relevant: int
    relevant_from: float
    lists_per_query: int
    cuts: NDArray[np.float64]
    scaling: ColumnScaling

    def make(self, part: _Part, fold: Path, source: str, generator: np.random.Generator) -> RankingDataset:
        lists, rows = self._draw(part, generator)
        if not rows:
            problem = (
                f"no query of the {part.name} part has a page judged {self.relevant_from:g} or better "
                f"and enough others for a list of {self.candidates}"
            )
            raise InputError(problem, file=fold)
        chosen, data = np.concatenate(rows), part.data
        query = np.repeat(lists, self.candidates)
        kept = np.unique(lists).size
        return RankingDataset(
            self.scaling.apply(data.features[chosen]),
            np.arange(0, chosen.size + 1, self.candidates),
            group=interval_codes(data.features[chosen, GROUP_COLUMN], self.cuts),
            group_names=interval_names(FEATURE_NAMES[GROUP_COLUMN], self.cuts),
            relevance=_judgments(data)[chosen] >= self.relevant_from,
            query_id=None if data.query_id is None else data.query_id[lists],
            doc_id=chosen - data.offsets[query] + 1,
            feature_names=FEATURE_NAMES,
            group_columns=[GROUP_COLUMN],
            source=f"{source}: {kept} of {part.queries.size} queries kept",
        )

    def _draw(
        self, part: _Part, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """Return the query of each list, and its rows."""
        relevant = _judgments(part.data) >= self.relevant_from
        queries, lists = [], []
        for query in part.queries:
            rows = np.arange(part.data.offsets[query], part.data.offsets[query + 1])
            for _ in range(self.lists_per_query):
                drawn = draw_candidates(
                    rows[relevant[rows]],
                    rows[~relevant[rows]],
                    length=self.candidates,
                    relevant=self.relevant,
                    generator=generator,
                )
                if drawn is not None:
                    queries.append(query)
                    lists.append(drawn)
        return np.array(queries, dtype=np.int64), lists


def _judgments(data: RankingDataset) -> NDArray[np.float32]:
    if data.relevance is None:
        raise InputError("there are no judgments", column="relevance")
    return data.relevance


def _fold_of(folder: Path) -> Path:
    if not folder.is_dir():
        raise InputError(f"no such folder; {HOLDS}", file=folder)
    present = [file for file in FILES.values() if (folder / file).exists()]
    if not present and (folder / "Fold1").is_dir():
        return folder / "Fold1"
    if not present:
        raise InputError(f"the folder has none of the files; {HOLDS}", file=folder)
    return folder


def _read_parts(fold: Path, progress: Progress | None) -> list[_Part]:
    for file in FILES.values():
        if not (fold / file).exists():
            raise InputError(f"no such file; {HOLDS}", file=fold / file)
    tables = {}
    for file in FILES.values():
        data = read_letor(fold / file, progress=progress)
        if data.features.shape[1] != len(FEATURE_NAMES):
            problem = f"MSLR has {len(FEATURE_NAMES)} features, the file has {data.features.shape[1]}"
            raise InputError(problem, file=fold / file)
        tables[file] = data
    try:
        refuse_shared_queries(tables)
    except InputError as error:
        raise error.located(fold) from None
    return [_Part(name, tables[file], np.arange(len(tables[file]))) for name, file in FILES.items()]


def _split_anew(parts: list[_Part], seed: int) -> list[_Part]:
    pooled = concatenate([part.data for part in parts])
    shuffled = np.random.default_rng(seed).permutation(len(pooled))
    ends = np.cumsum([part.queries.size for part in parts])
    queries = np.split(shuffled, ends[:-1])
    return [_Part(part.name, pooled, np.sort(chosen)) for part, chosen in zip(parts, queries, strict=True)]
