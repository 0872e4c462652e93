"""One door to all datasets for the command line: a name, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fultr.arguments import Progress
from fultr.data.dataset import DataSplits, RankingDataset
from fultr.data.dataset_files import read_dataset
from fultr.data.letor import read_letor
from fultr.datasets.arguments import PARTS, known_names
from fultr.datasets.german import german_credit
from fultr.datasets.mslr import mslr
from fultr.datasets.studios import studios
from fultr.datasets.synthetic import synthetic
from fultr.errors import InputError
from fultr.files import existing_file

NAMES = ("german", "studios", "synthetic", "mslr:FOLDER")
LETOR_ENDINGS = (".txt", ".svm", ".letor", ".dat")
TABLE_ENDINGS = (".arrow", ".parquet", ".csv")


def load_dataset(
    source: str | Path,
    *,
    split: str | None = None,
    seed: int = 0,
    group: str | None = None,
    groups: int | None = None,
    categories: Sequence[str] = (),
    keep_missing: bool = False,
    progress: Progress | None = None,
) -> RankingDataset:
    """Return the dataset that a name or a path stands for.

    Parameters
    ----------
    source
        ``"german"``, ``"studios"``, ``"synthetic"``, ``"mslr:FOLDER"``, a LETOR file (.txt, .svm, .letor,
        .dat) or a converted one (.arrow, .parquet, .csv). Graded judgments of a LETOR file stay as they
        are; `RankingDataset.binarize` makes relevances of them.
    split
        ``"train"`` (the default), ``"valid"`` or ``"test"``, for sources that have splits.
    seed
        The seed of the recipe; studios and files have no use for it.
    group
        The groups of German Credit, as `german_credit` describes them.
    groups
        The number of groups, for MSLR and synthetic data.
    categories, keep_missing
        How the features of a table are read; see `read_dataset`.
    progress
        Called with how much of a file has been read, and with its size.

    Examples
    --------
    >>> load_dataset("german", split="test", group="age")
    <RankingDataset German Credit (UCI), test: 500 lists, 10000 rows, 61 features, 2 groups>
    """
    text = str(source)
    if split is not None and split not in PARTS:
        raise InputError(f"no such split; {known_names(str(split), PARTS)}", column="split", value=split)
    if text == "german":
        _refuse(text, groups=groups)
        return _part(german_credit(seed) if group is None else german_credit(seed, group), split)
    _refuse(text, group=group)
    if text == "synthetic":
        return _part(synthetic(seed=seed, groups=2 if groups is None else groups), split)
    if text.startswith("mslr:") and text != "mslr:":
        folder = Path(text.removeprefix("mslr:"))
        return _part(
            mslr(folder, seed=seed, groups=2 if groups is None else groups, progress=progress), split
        )
    _refuse(text, groups=groups, split=split)
    return studios() if text == "studios" else _read(text, progress, categories, keep_missing=keep_missing)


def _part(splits: DataSplits, split: str | None) -> RankingDataset:
    return dict(splits)[split or "train"]


def _refuse(source: str, **arguments: object) -> None:
    """Raise if an argument is given that the source cannot follow: leaving it out would mislead."""
    for name, value in arguments.items():
        if value is not None:
            what = "is a single dataset, without splits" if name == "split" else "does not take it"
            raise InputError(f"'{source}' {what}", column=name, value=value)


def _read(
    text: str, progress: Progress | None, categories: Sequence[str] = (), *, keep_missing: bool = False
) -> RankingDataset:
    path = Path(text)
    ending = path.suffix.lower()
    if ending in LETOR_ENDINGS:
        return read_letor(existing_file(path), progress=progress)
    if ending in TABLE_ENDINGS:
        file = existing_file(path)
        return read_dataset(file, categories=categories, keep_missing=keep_missing, progress=progress)
    if text and path.is_dir():
        raise InputError(f"is a folder; for a fold of MSLR write mslr:{text}", file=text)
    if text and path.exists():
        endings = ", ".join((*LETOR_ENDINGS, *TABLE_ENDINGS))
        raise InputError(f"the name of a file of data must end in one of: {endings}", file=text)
    if len(path.parts) > 1 or ending:
        raise InputError("no such file", file=text)
    problem = f"no such dataset; {known_names(text, NAMES)}, or the path of a file"
    raise InputError(problem, column="source", value=text)
