"""Every format that is read: how files of it are made, how they are read, and what must come out."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
from numpy.typing import NDArray

import fultr
from fultr import ClickLog, FairRanker, RankingDataset
from fultr.audits import audit, read_audit
from fultr.clicks import read_position_bias
from fultr.data import Counts
from fultr.data.counts_files import read_counts, write_counts
from fultr.experiments.runs import Archive, Run
from fultr.experiments.worlds import Conditions
from fultr.logs import lightgbm_table, nested_table, read_aggregated_log, ubi_table
from fultr.policy.ranking_files import read_scored
from fultr.reports.runs import read_run
from fultr.training.run_folder import RunFolder
from tests import mutations
from tests.fuzz import generators as make
from tests.fuzz import oracles
from tests.fuzz.changes import changed_json, dumped, maybe_damaged
from tests.fuzz.generators import Files
from tests.training_tasks import BIAS, random_lists, random_log

Read = Callable[[Path], Any]
"""Reads the first file of a case; returns what an oracle can be compared with."""


@dataclass(frozen=True)
class Format:
    """A format: makers of files, the reader, and if the format is text, the slow reader that checks it."""

    make: Callable[[Random], Files]
    read: Read
    oracle: Callable[[Files], Any] | None = None


# --- what readers make of files, as the oracles write it ---


def entries_of_log(log: ClickLog) -> oracles.Entries:
    """Return the candidates and planted items of a log as `oracles.log_entries` does."""
    data = log.data
    impressions = np.arange(len(log)) if log.impression_id is None else log.impression_id
    queries = (np.arange(len(data)) if data.query_id is None else data.query_id)[log.lists]
    documents = np.arange(data.rows) if data.doc_id is None else data.doc_id
    groups = np.array([*data.group_names, ""], dtype=object)[data.group]
    by_name = np.argsort(np.array(data.feature_names, dtype=str), kind="stable")
    of_file = [index for index in by_name if data.feature_names]
    propensity = np.full(log.position.size, np.nan) if log.propensity is None else log.propensity
    entries: oracles.Entries = []
    for at, (row, impression) in enumerate(zip(log.row_of_entry, log.impression_of_entry, strict=True)):
        entry = str(impressions[impression]), str(queries[impression]), str(documents[row])
        clicked = int(log.position[at]), bool(log.click[at]), _or_none(propensity[at])
        entries.append((*entry, *clicked, str(groups[row]), tuple(data.features[row, of_file].tolist())))
    planted = log.planted
    chances = np.full(len(planted), np.nan) if planted.propensity is None else planted.propensity
    for impression, position, click, chance in zip(
        planted.impression, planted.position, planted.click, chances, strict=True
    ):
        name = str(impressions[impression]), "planted", ""
        entries.append((*name, int(position), bool(click), _or_none(chance), "", ()))
    return sorted(entries)


def _or_none(value: float) -> float:
    return -1.0 if np.isnan(value) else float(value)


def entries_of_counts(counts: Counts) -> oracles.Entries:
    """Return the counts of each query, document and position."""
    data, cells = counts.data, counts.cells
    assert data.query_id is not None
    assert data.doc_id is not None
    sums: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for row, position, shown, clicks in zip(
        cells.row, cells.position, cells.impressions, cells.clicks, strict=True
    ):
        query, document = data.query_id[data.list_of_row[row]], data.doc_id[row]
        cell = sums[str(query), str(document), int(position)]
        cell[0] += int(shown)
        cell[1] += int(clicks)
    return sorted((*cell, *counted) for cell, counted in sums.items())


def read_letor(path: Path) -> oracles.Entries:
    data = fultr.read_letor(path)
    assert data.query_id is not None
    assert data.relevance is not None
    queries, labels = data.query_id[data.list_of_row], data.relevance
    return sorted(
        (str(query).lstrip("0+"), float(label), tuple(features))
        for query, label, features in zip(queries, labels, data.features.tolist(), strict=True)
    )


def read_lightgbm(path: Path) -> oracles.Entries:
    log = fultr.read_log(lightgbm_table(path))
    given = [k for k, name in enumerate(("query_id", "doc_id"), start=1) if Path(f"{path}.{name}").exists()]
    return sorted((entry[3], entry[4], entry[6], *(entry[k] for k in given)) for entry in entries_of_log(log))


def read_labelled(path: Path) -> oracles.Entries:
    data = fultr.read_dataset(path)
    assert data.query_id is not None
    assert data.relevance is not None
    documents = np.full(data.rows, "") if data.doc_id is None else data.doc_id
    groups = np.array([*data.group_names, ""], dtype=object)[data.group]
    return sorted(
        (str(query), str(documents[row]), float(data.relevance[row]), str(groups[row]), tuple(features))
        for row, (query, features) in enumerate(
            zip(data.query_id[data.list_of_row], data.features.tolist(), strict=True)
        )
    )


def read_bias(path: Path) -> oracles.Entries:
    bias = read_position_bias(path)
    curves: Any = getattr(bias, "curves", {"": bias})
    return sorted((name, *curve.to_position_bias().values) for name, curve in curves.items())


def bias_of_file(files: Files) -> oracles.Entries:
    """Return curves as they are read, relative to the first position."""
    curves = oracles.position_bias(files)
    return sorted((name, *(value / values[0] for value in values)) for name, *values in curves)


def read_nested(path: Path) -> oracles.Entries:
    table = nested_table(path, positions="places", groups="owner", impression="session")
    return entries_of_log(fultr.read_log(table, features=[]))


def read_ubi(path: Path) -> oracles.Entries:
    return entries_of_log(fultr.read_log(ubi_table(path)))


def read_log(path: Path) -> oracles.Entries:
    """Read a log as single impressions; its features are those whose names say so."""
    by_type: list[str] = []
    entries = entries_of_log(fultr.read_log(path, on_features=by_type.extend))
    return [(*entry[:-1], ()) for entry in entries] if by_type else entries


def has_json(files: Files) -> None:
    """Refuse what is no JSON object of finite numbers."""
    oracles.json_object(next(iter(files.values())))


def is_sealed(files: Files) -> None:
    """Refuse a policy whose checksum is wrong."""
    content = next(iter(files.values()))
    oracles.need(mutations.resealed(content) == content)


# --- files of our own, made once ---


def _policies() -> list[bytes]:
    log = random_log(random_lists(seed=3), seed=1)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        settings: tuple[dict[str, Any], ...] = ({}, {"model": "mlp", "hidden": [2]}, {"group_blind": True})
        for more in settings:
            ranker = FairRanker(1.0, l2=0.1, folds=0, position_bias=BIAS, **more).fit(log)
            made.append(fultr.save(ranker, Path(folder) / "policy").read_bytes())
    return made


def policies() -> Format:
    seeds = _policies()

    def made(rng: Random) -> Files:
        data, other = rng.choice(seeds), rng.choice(seeds)
        seed, number = rng.getrandbits(32), rng.randrange(1, 4)
        *_, mutation = mutations.mutations(data, other, count=number, seed=seed)
        return {"policy": mutation.data}

    return Format(made, fultr.load, is_sealed)


def checkpoints() -> Format:
    """Return checkpoints of a training that is taken up again."""
    log = random_log(random_lists(lists=4, seed=3), seed=1)
    settings: dict[str, Any] = {"l2": 0.1, "folds": 0, "position_bias": BIAS}

    def trained(folder: Path) -> Any:
        with RunFolder.open(folder, {}, resume=True, checkpoint_every=0) as run:
            return FairRanker(1.0, **settings).fit(log, checkpoints=run).coef_

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        trained(folder)
        (kept,) = (folder / "checkpoints").iterdir()
        beside = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.iterdir() if path.is_file()
        }
        seed, called = kept.read_bytes(), str(kept.relative_to(folder))

    def made(rng: Random) -> Files:
        *_, mutation = mutations.mutations(seed, seed, count=rng.randrange(1, 4), seed=rng.getrandbits(32))
        return {called: mutation.data, **beside}

    return Format(made, lambda path: trained(path.parent.parent), is_sealed)


def counts_files() -> Format:
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        for seed, lists in ((1, 2), (2, 3)):
            path = Path(folder) / "counts.parquet"
            write_counts(
                random_log(random_lists(lists=lists, longest=3, seed=seed), seed=seed).compact(), path
            )
            tables.append(("counts.parquet", parquet.read_table(path)))
    return Format(make.changed_tables(tables), read_counts)


def datasets() -> Format:
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lists.parquet"
        fultr.write_dataset(random_lists(lists=3, longest=3, seed=1), path)
        tables.append(("lists.parquet", parquet.read_table(path)))
    return Format(make.changed_tables(tables), fultr.read_dataset)


def biases() -> Format:
    seeds: list[Any] = [
        {"values": [1, 0.5, 0.25]},
        {"values": [0.8, 0.2], "beyond": "zero"},
        {"values": [1.0], "beyond": 0.5},
        {
            "column": "device",
            "curves": {"phone": {"values": [1, 0.5]}, "desk": {"values": [1.0], "beyond": 1.0}},
        },
    ]
    return Format(make.changed_objects("bias.json", seeds), read_bias, bias_of_file)


def audits() -> Format:
    data = random_lists(lists=4, longest=3, seed=7)
    log = random_log(replace(data, query_id=np.arange(4) + 100), impressions=200, seed=1)
    ranker = FairRanker(1.0, l2=0.1, folds=0, position_bias=BIAS).fit(
        random_log(random_lists(seed=3), seed=1)
    )
    seeds = [
        audit(log, policies, position_bias=BIAS, resamples=50).to_dict()
        for policies in (None, {"new": ranker})
    ]
    return Format(make.changed_objects("audit.json", seeds), read_audit, has_json)


def runs() -> Format:
    """Return folders of finished runs, whose config.json or results.json is changed."""
    policy = _policies()[0]
    config = {
        "command": "train",
        "settings": {"seed": 0, "l2": None, "model": "linear"},
        "inputs": {"log": {"path": "log.parquet", "sha256": "0" * 64}},
    }
    measured = {"utility": 1.0, "disparity": 0.1}
    results = {
        "goal": {"max_disparity": 0.1},
        "multiplier": 0.5,
        "l2": 0.1,
        "policy": "policy",
        "training": measured,
        "validation": {"dcg": 1.0, "disparity_squared": 0.01},
    }
    row = {"fairness_weight": 1.0, "l2": 0.1, "seed": 0, "policy": "policy", "non_dominated": True}
    row |= {"train_utility": 1.0, "train_disparity": 0.1, "valid_utility": 1.0, "valid_disparity": 0.1}
    sweep = {**config, "command": "sweep", "settings": {"seeds": [0]}}
    cases = [(config, results), (sweep, {"trained": 3, "policies": [row]})]

    def made(rng: Random) -> Files:
        about, found = rng.choice(cases)
        if rng.random() < 0.4:
            about = changed_json(about, rng)
        else:
            found = changed_json(found, rng)
        content = {"config.json": dumped(about, rng), "results.json": dumped(found, rng)}
        name = rng.choice(list(content))
        return {**content, name: maybe_damaged(content[name], rng), "policy": policy}

    def checked(files: Files) -> None:
        for name in ("config.json", "results.json"):
            oracles.json_object(files[name])

    return Format(made, lambda path: read_run(path.parent), checked)


def archives() -> Format:
    """Return files of finished runs of a reproduction."""
    run = Run("pg-rank", Conditions("german", 1.0), (0.0,), (0.1,))
    row = {"method": "pg-rank", "trade_off": 0.0, "seconds": 1.0, "run_seconds": 1.0, "test_dcg": 0.5}
    seeds = [{"format": 3, "rows": [row, row]}]
    return Format(
        make.changed_objects(run.name, seeds), lambda path: Archive(path.parent).read(run), has_json
    )


def _first_column(data: RankingDataset) -> NDArray[np.float64]:
    return data.features[:, 0].astype(np.float64)


def tables_to_rank() -> Format:
    def read(path: Path) -> int:
        return read_scored(path, ["age", "price"], _first_column).rows

    def checked(files: Files) -> int:
        return len(oracles.csv_rows(files["items.csv"]))

    return Format(make.table_to_rank, read, checked)


def formats() -> dict[str, Callable[[], Format]]:
    """Return what makes each format; only what is asked for is made."""
    log = partial(partial, Format)
    return {
        "csv": log(make.csv_log, read_log, oracles.csv_log),
        "ndjson": log(make.ndjson_log, read_log, oracles.ndjson_log),
        "parquet": log(make.table_log("log.parquet", make.parquet_bytes), read_log),
        "arrow": log(make.table_log("log.arrow", make.arrow_bytes), read_log),
        "letor": log(make.letor, read_letor, oracles.letor_rows),
        "lightgbm": log(make.lightgbm, read_lightgbm, oracles.lightgbm_log),
        "ubi": log(make.ubi, read_ubi, oracles.ubi_log),
        "nested": log(make.nested, read_nested, oracles.nested_log),
        "aggregated": log(
            make.aggregated, lambda path: entries_of_counts(read_aggregated_log(path)), oracles.aggregated_log
        ),
        "labelled CSV": log(make.labelled, read_labelled, oracles.labelled_rows),
        "dataset": datasets,
        "counts": counts_files,
        "table to rank": tables_to_rank,
        "policy": policies,
        "checkpoint": checkpoints,
        "bias.json": biases,
        "audit.json": audits,
        "run": runs,
        "run of reproduce": archives,
    }
