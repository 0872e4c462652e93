"""A few random files of each format, and all that once failed; `make fuzz` tries more of them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import CORPUS
from tests.fuzz.formats import Format, formats
from tests.fuzz.harness import Case, outcome, try_cases

FILES = 1000
"""Of each format, each of which takes about 2 ms."""

NAMES = list(formats())
SEEDS = sorted(path for path in CORPUS.glob("*/*") if path.is_dir())


@cache
def format_called(name: str) -> Format:
    return formats()[name]()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_random_files_are_read_as_what_they_are_or_refused_in_a_line(tmp_path: Path, name: str) -> None:
    found = dict(try_cases(name, format_called(name), range(FILES), tmp_path))
    failed = {number: what for number, what in found.items() if what not in ("accepted", "refused")}
    assert not failed
    assert set(found.values()) == {"accepted", "refused"}  # a maker of only one kind tests nothing


@pytest.mark.slow
@pytest.mark.parametrize("name", ["csv", "ndjson", "letor", "aggregated", "nested", "bias.json"])
@given(random=st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_files_of_text_that_fail_are_made_small(name: str, random: Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert outcome(format_called(name), format_called(name).make(random), Path(folder))


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.parent.name}-{seed.name}")
def test_files_that_once_failed_do_not(tmp_path: Path, seed: Path) -> None:
    format_ = format_called(seed.parent.name)
    first = next(iter(Case(seed.parent.name, 0).files(format_)))
    names = [first, *sorted(path.name for path in seed.iterdir() if path.name != first)]
    files = {name: (seed / name).read_bytes() for name in names}
    assert outcome(format_, files, tmp_path) in ("accepted", "refused")


def test_there_are_files_that_once_failed() -> None:
    assert len(SEEDS) > 10
