"""Click logs in the layouts that others have: each reads back as the log that it was made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import fultr
from fultr import (
    ClickLog,
    ClickNoise,
    Counts,
    FairRanker,
    InputError,
    PlackettLuce,
    PositionBias,
    RankingDataset,
    evaluate,
    read_log,
    simulate_clicks,
    write_log,
)
from fultr.cli.files import read_any, read_impressions
from fultr.data import Planted, table_files
from fultr.data.counts_files import read_counts
from fultr.logs import (
    lightgbm_table,
    nested,
    nested_table,
    read_aggregated_log,
    ubi_table,
)
from fultr.logs.aggregated import ASSUMPTION, UNKNOWN_COUNT
from tests.commands import json_of, refusal, result_of
from tests.comparison import same_logs
from tests.log_formats import (
    GOOD_COUNTS,
    aggregated,
    event,
    positions_by_document,
    small_ubi,
    write_lightgbm,
    write_lines,
)
from tests.strategies import logs

BIAS = PositionBias.power(1.0)


def simulated(top_k: int | None = None, impressions: int = 400) -> ClickLog:
    """A log over ten queries, each with one list of six documents of two groups; some groups are unknown."""
    rng = np.random.default_rng(0)
    data = RankingDataset(
        rng.normal(size=(60, 3)),
        np.arange(0, 61, 6),
        group=rng.integers(-1, 2, size=60),
        group_names=("left", "right"),
        relevance=rng.random(60) < 0.4,
        query_id=[f"query {n}" for n in range(10)],
        doc_id=[f"d{n % 7}" for n in range(60)],
    )
    log = simulate_clicks(
        data,
        PlackettLuce(lambda x: x[:, 0]),
        BIAS,
        noise=ClickNoise(0.9, 0.1),
        impressions=impressions,
        top_k=top_k,
        seed=3,
    )
    return bare(replace(log, impression_id=np.array([f"i{n}" for n in range(impressions)], dtype=object)))


def bare(log: ClickLog) -> ClickLog:
    """A log without what nobody else's layout has a place for."""
    data = replace(log.data, source="", group_columns=())
    return replace(
        log,
        data=data,
        planted=Planted.none(),
        propensity=None,
        noise=None,
        position_bias=None,
        timestamp=None,
        empties_dropped=False,
        origin={},
    )


class Streamed:
    """A frame of some library that fultr has never heard of: it can be read as a stream of Arrow batches."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


FRAMES: list[Callable[[dict[str, Any]], Any]] = [pd.DataFrame, pl.DataFrame, pa.table, dict, Streamed]


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_of_any_library_make_the_same_log(frame: Callable[[dict[str, Any]], Any]) -> None:
    table: dict[str, Any] = {
        "impression_id": [1, 1, 2, 2],
        "query_id": ["a"] * 4,
        "doc_id": ["x", "y", "y", "x"],
        "position": [1, 2, 1, 2],
        "click": [0, 1, 1, 0],
        "feature_price": [1.0, 2.0, 2.0, 1.0],
    }
    assert same_logs(read_log(frame(table)), read_log(table))
    nested: dict[str, Any] = {
        "query_id": ["a", "a"],
        "doc_ids": [["x", "y"], ["y", "x"]],
        "clicks": [[0, 1], [1, 0]],
        "id": [1, 2],
    }
    found = read_log(nested_table(frame(nested), impression="id"))
    assert same_logs(found, read_log({k: v for k, v in table.items() if k != "feature_price"}))


# nested: one row for each impression


def sessions(log: ClickLog, *, features: str = "list", ordered: bool = False) -> pa.Table:
    """The log with a row for each impression; `ordered` puts documents in the order they were shown in."""
    data, rows = log.data, []
    assert data.query_id is not None
    assert data.doc_id is not None
    names = [*data.group_names, None]
    for number in range(len(log)):
        entry = np.arange(log.offsets[number], log.offsets[number + 1])
        if ordered:
            entry = entry[np.argsort(log.position[entry])]
        row = log.row_of_entry[entry]
        rows.append(
            {
                "session": None if log.impression_id is None else log.impression_id[number],
                "query": data.query_id[log.lists[number]],
                "urls": data.doc_id[row].tolist(),
                "clicked": log.click[entry].astype(int).tolist(),
                "places": [int(place) or None for place in log.position[entry]],
                "owners": [names[code] for code in data.group[row]],
                "vectors": data.features[row].tolist(),
                **{f"f{k}": data.features[row, k].tolist() for k in range(data.features.shape[1])},
            }
        )
    made = pa.Table.from_pylist(rows)
    single = [name for name in made.schema.names if name.startswith("f")]
    return made.drop_columns(single if features == "list" else ["vectors"])


NAMES: dict[str, Any] = {"query": "query", "documents": "urls", "clicks": "clicked", "impression": "session"}


@pytest.mark.parametrize("features", ["list", "columns"])
@pytest.mark.parametrize("block", [1, 7, 1 << 14])
def test_nested_tables_read_back_as_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: str, block: int
) -> None:
    log = simulated(top_k=4, impressions=120)
    monkeypatch.setattr(nested, "IMPRESSIONS_A_BLOCK", block)
    monkeypatch.setattr(table_files, "ROWS_A_BATCH", 37)
    pq.write_table(sessions(log, features=features), tmp_path / "log.parquet")
    wanted: Any = "vectors" if features == "list" else ["f0", "f1", "f2"]
    found = read_log(
        nested_table(tmp_path / "log.parquet", **NAMES, positions="places", groups="owners", features=wanted)
    )
    names = ("1", "2", "3") if features == "list" else ("f0", "f1", "f2")
    assert same_logs(found, replace(log, data=replace(log.data, feature_names=names)))


@settings(max_examples=40)
@given(logs(ids=True))
def test_any_log_can_be_nested(log: ClickLog) -> None:
    log = bare(log)
    log = replace(
        log, data=replace(log.data, features=np.empty((log.data.rows, 0), np.float32), feature_names=())
    )
    given_ids = log.impression_id is not None
    found = read_log(
        nested_table(
            sessions(log),
            query="query",
            documents="urls",
            clicks="clicked",
            positions="places",
            groups="owners",
            impression="session" if given_ids else None,
        ),
        group_names=log.data.group_names,
    )
    assert same_logs(found, log)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_the_order_of_a_list_is_the_position(kind: Any) -> None:
    log = simulated()
    table = sessions(log, ordered=True).drop_columns(["places", "vectors"])
    table = table.set_column(2, "urls", pa.array(table["urls"].to_pylist(), kind(pa.string())))
    plain = replace(log, data=replace(log.data, features=np.empty((60, 0), np.float32), feature_names=()))
    assert same_logs(read_log(nested_table(table, **NAMES, groups="owners")), plain)
    if kind in (pa.list_, pa.large_list):
        assert same_logs(read_log(nested_table(pl.from_arrow(table), **NAMES, groups="owners")), plain)


def test_documents_of_nested_logs_may_stand_in_a_second_table(tmp_path: Path) -> None:
    log = simulated()
    data = log.data
    assert data.query_id is not None
    items = pa.table(
        {
            "query_id": data.query_id[data.list_of_row].tolist(),
            "doc_id": list(data.doc_id if data.doc_id is not None else ()),
            "group": [[*data.group_names, None][code] for code in data.group],
            **{name: data.features[:, k] for k, name in enumerate(data.feature_names)},
        }
    )
    pq.write_table(items, tmp_path / "items.parquet")
    table = sessions(log).select(["session", "query", "urls", "clicked", "places"])
    found = read_log(nested_table(table, **NAMES, positions="places"), items=tmp_path / "items.parquet")
    assert same_logs(found, log)
    grouped = nested_table(sessions(log), **NAMES, positions="places", groups="owners")
    assert same_logs(read_log(grouped, items=items), log)
    other = items.set_column(2, "group", pa.array(["left"] * len(items)))
    with pytest.raises(InputError, match="column 'owners': group of the same document and query"):
        read_log(grouped, items=other)


def test_nested_logs_and_searches_can_be_counted_without_holding_impressions(tmp_path: Path) -> None:
    log = simulated()
    columns: dict[str, Any] = {**NAMES, "positions": "places", "groups": "owners", "features": "vectors"}
    counts = fultr.count(nested_table(sessions(log), **columns))
    assert_same_counts(counts, read_log(nested_table(sessions(log), **columns)).compact())
    queries, events = ubi_records(log)
    files = write_lines(queries, tmp_path / "q.ndjson"), write_lines(events, tmp_path / "e.ndjson")
    for positions in ("response", "events"):
        counts = fultr.count(ubi_table(*files, positions=positions))
        assert_same_counts(counts, read_log(ubi_table(*files, positions=positions)).compact())
        assert counts.origin["positions"] == positions


def test_impressions_without_ids_of_several_tables_are_not_taken_for_one_another() -> None:
    first = {"query_id": ["a"], "doc_ids": [["x", "y"]], "clicks": [[1, 0]], "places": [[1, 2]]}
    second = {"query_id": ["a"], "doc_ids": [["v", "w"]], "clicks": [[0, 1]], "places": [[3, 4]]}
    tables = [nested_table(sessions, positions="places") for sessions in (first, second)]
    with pytest.raises(InputError, match="no ids, .* count each by itself, and merge the counts"):
        fultr.count(tables)
    counts = [fultr.count(table) for table in tables]
    assert fultr.merge(*counts).impressions.tolist() == [1, 1]


def test_each_table_names_its_own_columns(tmp_path: Path) -> None:
    for name, clicks in (("one", [[1, 0]]), ("two", [[2, 0]])):
        table = {"id": [name], "query_id": ["a"], "doc_ids": [["x", "y"]], f"clicks_{name}": clicks}
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    tables = [
        nested_table(tmp_path / f"{name}.parquet", clicks=f"clicks_{name}", impression="id")
        for name in ("one", "two")
    ]
    with pytest.raises(InputError, match="two.parquet, row 1, column 'clicks_two': must be 0 or 1"):
        fultr.count(tables)


# aggregated: counts


def assert_same_counts(one: Counts, other: Counts) -> None:
    """Both have the same lists, impressions and cells, in the same order."""
    for name in ("query_id", "doc_id", "offsets", "group", "features", "group_names", "feature_names"):
        np.testing.assert_array_equal(getattr(one.data, name), getattr(other.data, name), err_msg=name)
    np.testing.assert_array_equal(one.impressions, other.impressions)
    for name in ("row", "position", "propensity", "impressions", "clicks"):
        np.testing.assert_array_equal(getattr(one.cells, name), getattr(other.cells, name), err_msg=name)


@settings(max_examples=60)
@given(logs(ids=True))
def test_counts_of_one_list_for_each_query_come_back_from_a_table(log: ClickLog) -> None:
    counts = log.compact()
    first = counts[np.unique(counts.data.query_codes, return_index=True)[1]]
    if not first.cells.clicks.any():
        return
    found = read_aggregated_log(aggregated(first), group_names=first.data.group_names)
    assert_same_counts(found, first)
    assert found.facts is None
    known = found.clicked_impressions != UNKNOWN_COUNT
    assert (found.clicked_impressions == first.clicked_impressions)[known].all()


def test_counts_say_what_they_assume() -> None:
    assert ASSUMPTION == "all documents of a query were candidates in each of its impressions"
    assert read_aggregated_log(GOOD_COUNTS).origin == {"format": "aggregated", "assumes": ASSUMPTION}


def counted(log: ClickLog) -> dict[str, list[Any]]:
    """Counts for each query, document and position, by a plain walk through the log."""
    data = log.data
    counts: dict[Any, tuple[int, int, int]] = {}
    assert data.query_id is not None
    assert data.doc_id is not None
    for number in range(len(log)):
        for entry in range(log.offsets[number], log.offsets[number + 1]):
            row = log.row_of_entry[entry]
            key = (data.query_id[log.lists[number]], data.doc_id[row], int(log.position[entry]))
            seen, clicks, _ = counts.get(key, (0, 0, row))
            counts[key] = (seen + (key[2] > 0), clicks + int(log.click[entry]), row)
    names = [*data.group_names, None]
    return {
        "query_id": [key[0] for key in counts],
        "doc_id": [key[1] for key in counts],
        "position": [key[2] or None for key in counts],
        "impressions": [value[0] for value in counts.values()],
        "clicks": [value[1] for value in counts.values()],
        "group": [names[data.group[value[2]]] for value in counts.values()],
        **{
            f"feature_{name}": [float(data.features[value[2], k]) for value in counts.values()]
            for k, name in enumerate(data.feature_names)
        },
    }


def content(log: Counts) -> dict[Any, Any]:
    """What a compact log holds, whatever the order of its lists and rows."""
    data = log.data
    assert data.query_id is not None
    assert data.doc_id is not None
    query = data.query_id[data.list_of_row]
    cells = {
        (query[row], data.doc_id[row], int(place), None if p is None else float(p)): (int(seen), int(clicks))
        for row, place, p, seen, clicks in zip(
            log.cells.row,
            log.cells.position,
            [None] * log.cells.row.size if log.cells.propensity is None else log.cells.propensity,
            log.cells.impressions,
            log.cells.clicks,
            strict=True,
        )
    }
    names = [*data.group_names, None]
    items = {
        (query[row], data.doc_id[row]): (names[data.group[row]], data.features[row].tolist())
        for row in range(data.rows)
    }
    return {
        "cells": cells,
        "items": items,
        "impressions": dict(zip(data.query_id.tolist(), log.impressions.tolist(), strict=True)),
        "names": (data.feature_names, data.group_names),
        "about": (log.position_bias, log.noise, log.empties_dropped),
    }


@pytest.mark.parametrize("top_k", [None, 4])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_counts_read_as_the_compacted_log(
    tmp_path: Path, top_k: int | None, shuffled: bool, ending: str
) -> None:
    log = simulated(top_k)
    frame = pd.DataFrame(counted(log)).astype({"position": "Int64"})
    if shuffled:  # rows in any order, some split in two that add up
        extra = frame[frame["impressions"] > 1].head(20)
        frame.loc[extra.index, "impressions"] -= 1
        frame = pd.concat([frame, extra.assign(impressions=1, clicks=0)]).sample(frac=1, random_state=0)
        frame["clicks"] = np.minimum(frame["clicks"], frame["impressions"])
    source: Any = frame
    if ending == "csv":
        frame.to_csv(tmp_path / "counts.csv", index=False)
        source = tmp_path / "counts.csv"
    elif ending == "parquet":
        frame.to_parquet(tmp_path / "counts.parquet", index=False)
        source = tmp_path / "counts.parquet"
    found = read_aggregated_log(source)
    expected = content(log.compact())
    if shuffled:
        seen, expected_seen = content(found)["cells"], expected["cells"]
        assert {key: cell[0] for key, cell in seen.items()} == {k: c[0] for k, c in expected_seen.items()}
        assert content(found)["items"] == expected["items"]
        return
    assert content(found) == expected
    assert found.clicked_impressions.tolist() == [UNKNOWN_COUNT] * len(found.data)


def test_impressions_with_a_click_are_known_where_only_one_number_is_possible() -> None:
    rows = [
        ("never", "x", 1, 5, 0),
        ("one document", "x", 1, 5, 3),
        ("one document", "y", 2, 5, 0),
        ("one position", "x", 1, 5, 3),
        ("one position", "y", 1, 5, 2),
        ("all", "x", 1, 4, 4),
        ("all", "y", 2, 4, 2),
        ("open", "x", 1, 5, 2),
        ("open", "y", 2, 5, 1),
    ]
    names = ("query_id", "doc_id", "position", "impressions", "clicks")
    found = read_aggregated_log({name: [row[k] for row in rows] for k, name in enumerate(names)})
    assert found.data.query_id is not None
    known = dict(zip(found.data.query_id.tolist(), found.clicked_impressions.tolist(), strict=True))
    assert known == {"never": 0, "one document": 3, "one position": 5, "all": 4, "open": UNKNOWN_COUNT}


def test_training_and_evaluation_from_counts_are_those_from_the_log() -> None:
    log = simulated(impressions=1500)
    counts = read_aggregated_log(counted(log))
    assert counts.data.query_id is not None
    assert log.data.query_id is not None
    settings_: dict[str, Any] = {"fairness_weight": 1.0, "position_bias": BIAS, "l2": 0.01, "seed": 1}
    raw = FairRanker(**settings_).fit(log)
    place = {query: number for number, query in enumerate(counts.data.query_id.tolist())}
    in_order = counts[np.array([place[query] for query in log.data.query_id.tolist()])]
    same = FairRanker(**settings_).fit(in_order)
    np.testing.assert_allclose(same.predict(log.data), raw.predict(log.data), atol=1e-6)
    # sums in another order: the descent ends at another point, as near to the optimum
    other_order = FairRanker(**settings_).fit(counts)
    np.testing.assert_allclose(other_order.predict(log.data), raw.predict(log.data), atol=5e-3)
    one = evaluate(raw, log, position_bias=BIAS, intervals=None)
    other = evaluate(raw, counts, position_bias=BIAS, intervals=None)
    assert other.dcg == pytest.approx(one.dcg, rel=1e-9)
    assert other.disparity == pytest.approx(one.disparity, rel=1e-9)


def test_the_number_of_searches_may_be_a_column() -> None:
    table: dict[str, Any] = {
        "query_id": [1, 1],
        "doc_id": [1, 2],
        "position": [1, 2],
        "impressions": [5, 9],
        "clicks": [1, 0],
    }
    with pytest.raises(InputError, match="9 impressions at position 2, but 5 impressions had a document"):
        read_aggregated_log(table)
    assert read_aggregated_log({**table, "query_impressions": [12, 12]}).impressions.tolist() == [12]
    renamed = {**{k: v for k, v in table.items() if k != "clicks"}, "total": [9, 9], "taps": [1, 0]}
    found = read_aggregated_log(renamed, columns={"clicks": "taps", "query_impressions": "total"})
    assert found.impressions.tolist() == [9]


def test_a_query_that_was_never_shown_is_no_list() -> None:
    table = {
        "query_id": ["a", "b", "a"],
        "doc_id": [1, 1, 2],
        "position": [1, None, None],
        "impressions": [3, 0, 0],
        "clicks": [1, 0, 0],
    }
    found = read_aggregated_log(table)
    assert found.data.query_id is not None
    assert found.data.query_id.tolist() == ["a"]
    assert found.data.lengths.tolist() == [2]
    assert found.cells.row.tolist() == [0]


# LightGBM


def test_files_for_lightgbm_read_back_as_the_log(tmp_path: Path) -> None:
    log = simulated()
    write_lightgbm(log, tmp_path / "train.txt")
    found = read_log(lightgbm_table(tmp_path / "train.txt"))
    names = replace(log.data, feature_names=("0", "1", "2"))
    assert same_logs(found, replace(log, data=names, impression_id=None))
    np.testing.assert_allclose(
        np.sort(found.compact().ips_weights(BIAS)), np.sort(log.compact().ips_weights(BIAS))
    )
    for name in ("query_id", "doc_id", "item_group"):  # what LightGBM itself has
        (tmp_path / f"train.txt.{name}").unlink()
    alone = read_log(lightgbm_table(tmp_path / "train.txt"))
    assert alone.data.query_id is None
    assert alone.data.doc_id is None
    # without ids, rows keep the order of the file
    assert alone.position.tolist() == log.position.tolist()
    assert alone.click.tolist() == log.click.tolist()
    shallow = simulated(top_k=2)
    write_lightgbm(shallow, tmp_path / "top.txt")
    top = read_log(lightgbm_table(tmp_path / "top.txt"))
    assert np.diff(top.offsets).tolist() == [2] * len(shallow)


LIGHTGBM_DATA = {
    "from one": "0 1:0.5 2:1\n1 1:0.25\n0 2:-3\n",
    "from zero": "0 0:0.5 1:1\n1 0:0.25\n0 1:-3\n",
    "with queries": "0 qid:7 1:0.5 2:1 # a comment\n1 qid:7 1:0.25\n0 qid:8 2:-3\n",
    "csv": "0,0.5,1\n1,0.25,0\n0,0,-3\n",
    "csv with a header": "a,label,b\n0.5,0,1\n0.25,1,0\n0,0,-3\n",
    "tsv": "0\t0.5\t1\n1\t0.25\t0\n0\t0\t-3\n",
}


@pytest.mark.parametrize("data", LIGHTGBM_DATA.values(), ids=LIGHTGBM_DATA)
@pytest.mark.parametrize("places", ["1\n2\n1\n", "0\n1\n0\n", "pos_1\npos_2\npos_1\n"])
def test_data_for_lightgbm_in_its_forms(tmp_path: Path, data: str, places: str) -> None:
    path = tmp_path / "train.data"
    path.write_text(data)
    (tmp_path / "train.data.query").write_text("2\n1\n")
    (tmp_path / "train.data.position").write_text(places)
    log = read_log(lightgbm_table(path))
    assert log.data.features.tolist() == [[0.5, 1], [0.25, 0], [0, -3]]
    assert log.click.tolist() == [False, True, False]
    assert log.position.tolist() == [1, 2, 1]
    assert log.data.lengths.tolist() == [2, 1]
    queries = None if log.data.query_id is None else log.data.query_id.tolist()
    assert queries == ([7, 8] if "qid" in data else None)


def test_weights_for_lightgbm_are_what_they_are_said_to_be(tmp_path: Path) -> None:
    log = simulated()
    write_lightgbm(log, tmp_path / "train.txt")
    weight = tmp_path / "train.txt.weight"
    weight.write_text("".join(f"{2 + k % 3}\n" for k in range(log.entries)))
    with pytest.raises(InputError, match="there are weights; say what they are"):
        read_log(lightgbm_table(tmp_path / "train.txt"))
    assert read_log(lightgbm_table(tmp_path / "train.txt", weights="ignore")).propensity is None
    found = read_log(lightgbm_table(tmp_path / "train.txt", weights="inverse-propensity"))
    assert found.propensity is not None
    assert log.data.doc_id is not None
    by_document = np.lexsort((log.data.doc_id[log.row_of_entry].tolist(), log.impression_of_entry))
    np.testing.assert_allclose(found.propensity, 1 / (2 + by_document % 3))
    weight.write_text(weight.read_text().replace("2", "0.5", 1))
    with pytest.raises(InputError, match=r"train.txt.weight, row 1, column 'weight': .* \(got '0.5'\)"):
        read_log(lightgbm_table(tmp_path / "train.txt", weights="inverse-propensity"))


# User Behavior Insights


def ubi_records(log: ClickLog, *, base: int = 1, whole: bool = False) -> tuple[list[Any], list[Any]]:
    """The searches and events of a log, with impressions, and other events that say nothing.

    With `whole`, documents are integers, which events write as text, as the schema lets them.
    """
    data, queries, events = log.data, [], []
    assert data.query_id is not None
    assert data.doc_id is not None
    for number in range(len(log)):
        entry = np.arange(log.offsets[number], log.offsets[number + 1])
        # what was not shown comes last in the response
        entry = entry[np.argsort(np.where(log.position[entry] == 0, 10**6, log.position[entry]))]
        documents = data.doc_id[log.row_of_entry[entry]].tolist()
        search = f"i{number}"
        queries.append(
            {
                "query_id": search,
                "client_id": "c",
                "user_query": data.query_id[log.lists[number]],
                "query_response_hit_ids": [int(name[1:]) for name in documents] if whole else documents,
                "timestamp": f"2024-12-11T04:56:{number % 60:02}.419Z",
            }
        )
        for document, position, click in zip(documents, log.position[entry], log.click[entry], strict=True):
            where = {
                "object": {"object_id": document[1:] if whole else document, "object_id_field": "sku"},
                "position": {"ordinal": int(position) - 1 + base},
            }
            event = {"query_id": search, "event_attributes": where, "timestamp": "2024-12-11T04:56:49Z"}
            if position:
                events.append({**event, "action_name": "impression"})
            if click:
                events += [{**event, "action_name": "click"}, {**event, "action_name": "purchase"}]
    return queries, events


def without_features(log: ClickLog) -> ClickLog:
    data = replace(
        log.data,
        features=np.empty((log.data.rows, 0), np.float32),
        feature_names=(),
        group=np.full(log.data.rows, -1),
        group_names=(),
    )
    return replace(log, data=data)


@pytest.mark.parametrize("form", ["plain", "exported", "bulk", "parquet"])
@pytest.mark.parametrize("positions", ["response", "events"])
def test_searches_and_events_read_back_as_the_log(tmp_path: Path, form: str, positions: Any) -> None:
    log = simulated(top_k=None if positions == "response" else 4)
    queries, events = ubi_records(log)
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(queries), tmp_path / "queries.parquet")
        pq.write_table(pa.Table.from_pylist(events), tmp_path / "events.parquet")
        found = read_log(
            ubi_table(tmp_path / "queries.parquet", tmp_path / "events.parquet", positions=positions)
        )
    else:
        first = write_lines(queries, tmp_path / "queries.ndjson", form)
        second = write_lines(events, tmp_path / "events.ndjson", form)
        found = read_log(ubi_table(first, second, positions=positions))
    assert found.timestamp is not None
    assert str(found.timestamp[0]) == "2024-12-11T04:56:00.419000"
    assert found.origin == {
        "format": "UBI 1.3.0",
        "positions": positions,
        "searches_without_results": 0,
        "skipped": 0,
    }
    assert same_logs(bare(found), without_features(log))


def test_one_file_may_hold_searches_and_events_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "ROWS_A_BATCH", 50)
    log = simulated()
    queries, events = ubi_records(log, base=0)
    both = write_lines([*events, *queries], tmp_path / "both.jsonl")
    for positions in ("response", "events"):
        found = read_log(ubi_table(both, positions=positions))
        assert same_logs(bare(found), without_features(log))


def test_numbers_of_documents_stay_numbers(tmp_path: Path) -> None:
    queries, events = ubi_records(simulated(impressions=50), whole=True)
    log = read_log(
        ubi_table(write_lines(queries, tmp_path / "q.ndjson"), write_lines(events, tmp_path / "e.ndjson"))
    )
    assert log.data.doc_id is not None
    assert log.data.doc_id.dtype == np.int64
    assert log.click.any()


def test_positions_by_response_or_by_events(tmp_path: Path) -> None:
    queries, events = small_ubi()
    both = write_lines([*queries, *events], tmp_path / "ubi.ndjson")
    log = read_log(ubi_table(both))
    assert log.origin["searches_without_results"] == 1
    assert positions_by_document(log) == [{"a": 1, "b": 2, "c": 3}, {"b": 1, "a": 2}]
    assert log.data.doc_id is not None
    assert log.impression_of_entry[log.click].tolist() == [0]
    assert log.data.doc_id[log.row_of_entry[log.click]].tolist() == ["b"]
    seen = read_log(ubi_table(both, positions="events"))
    assert positions_by_document(seen) == [{"a": 1, "b": 2, "c": 0}, {"b": 1, "a": 0}]
    from_zero = read_log(ubi_table(both, positions="events", first_position=0))
    assert positions_by_document(from_zero) == [{"a": 2, "b": 3, "c": 0}, {"b": 2, "a": 0}]


def test_events_may_bring_their_own_query(tmp_path: Path) -> None:
    events = [
        {**event("s", "impression", "x", 0), "user_query": "tv"},
        {**event("s", "click", "y", 1), "user_query": "tv"},
    ]
    log = read_log(ubi_table(write_lines(events, tmp_path / "e.ndjson"), positions="events"))
    assert log.position.tolist() == [1, 2]
    assert log.data.query_id is not None
    assert log.data.query_id.tolist() == ["tv"]


# commands


def test_convert_makes_our_table_of_each_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = simulated()
    pq.write_table(sessions(log), tmp_path / "nested.parquet")
    write_lightgbm(log, tmp_path / "train.txt")
    queries, events = ubi_records(log)
    write_lines(queries, tmp_path / "q.ndjson")
    write_lines(events, tmp_path / "e.ndjson")
    columns: dict[str, Any] = {**NAMES, "positions": "places", "groups": "owners", "features": "vectors"}
    cases: list[tuple[list[object], ClickLog]] = [
        (
            ["nested", tmp_path / "nested.parquet", *(f"--column={n}={c}" for n, c in columns.items())],
            read_log(nested_table(tmp_path / "nested.parquet", **columns)),
        ),
        (["lightgbm", tmp_path / "train.txt"], read_log(lightgbm_table(tmp_path / "train.txt"))),
        (
            ["ubi", tmp_path / "q.ndjson", "--events", tmp_path / "e.ndjson"],
            read_log(ubi_table(tmp_path / "q.ndjson", tmp_path / "e.ndjson")),
        ),
    ]
    for number, (arguments, expected) in enumerate(cases):
        out = tmp_path / f"out{number}.parquet"
        found = json_of(capsys, "convert", "--from", *arguments, out)
        assert found["kind"] == "click log"
        assert str(out) in found["files"]
        assert same_logs(read_log(out), expected)


def test_counts_are_known_by_their_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = simulated()
    pd.DataFrame(counted(log)).to_csv(tmp_path / "counts.csv", index=False)
    read = read_any(tmp_path / "counts.csv")
    assert read.kind == "aggregated log"
    assert read.counts is not None
    assert content(read.counts) == content(log.compact())
    assert ASSUMPTION in capsys.readouterr().err
    with pytest.raises(
        InputError, match="counts.csv: holds counts of clicks.* single impressions are needed"
    ):
        read_impressions(tmp_path / "counts.csv")
    found = json_of(capsys, "convert", tmp_path / "counts.csv", tmp_path / "counts.parquet")
    assert found["kind"] == "aggregated log"
    kept = read_counts(tmp_path / "counts.parquet")
    assert content(kept) == content(log.compact())
    assert kept.origin["assumes"] == ASSUMPTION
    write_log(log, tmp_path / "clicks.parquet")
    assert same_logs(read_impressions(tmp_path / "clicks.parquet"), log)


def test_commands_take_counts_as_they_take_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulated()
    assert log.data.query_id is not None
    write_log(log, tmp_path / "clicks.parquet")
    pd.DataFrame(counted(log)).to_parquet(tmp_path / "counts.parquet", index=False)
    runs, estimates = [], []
    for name in ("clicks", "counts"):
        file, run = tmp_path / f"{name}.parquet", tmp_path / name
        trained = json_of(capsys, "train", file, "--lambda", 1, "--l2", 0.01, "--eta", 1, "--out", run)
        measured = json_of(capsys, "evaluate", tmp_path / "clicks", file, "--eta", 1)
        (bias,) = json_of(capsys, "propensity", file)["estimates"]
        code, _, err = result_of(capsys, "noise", file, "--eta", 1)
        assert code == 2
        runs.append((trained["training"]["utility"], measured["dcg"], measured["disparity"]))
        estimates.append((bias["values"], err.splitlines()[-1]))
    assert runs[1] == pytest.approx(runs[0], rel=1e-9)
    assert estimates[1] == estimates[0]
    line = refusal(
        capsys, "compare", tmp_path / "counts.parquet", "--test", "german", "--out", tmp_path / "out"
    )
    assert "single impressions are needed" in line


def test_counts_do_not_tell_how_many_impressions_had_no_click(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulated()
    pd.DataFrame(counted(log)).to_csv(tmp_path / "counts.csv", index=False)
    found = json_of(capsys, "inspect", tmp_path / "counts.csv", "--eta", 1)
    assert found["impressions"] == len(log)
    assert found["impressions_without_click"] is None
    assert found["facts"]["impressions_without_click"] is None
    assert "without a click" not in result_of(capsys, "inspect", tmp_path / "counts.csv", "--eta", 1)[1]


def test_options_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(simulated(), tmp_path / "log.parquet")
    (tmp_path / "data.txt").write_text("1 qid:1 1:1\n0 qid:1 1:2\n")
    pd.DataFrame(GOOD_COUNTS).to_csv(tmp_path / "counts.csv", index=False)
    log, out = tmp_path / "log.parquet", tmp_path / "out.parquet"
    for arguments, part in (
        ((log, "--events", log), "--events is for --from ubi"),
        ((log, "--skip-strays"), "--skip-strays is for --from ubi"),
        (("--from", "nested", log, "--weights", "ignore"), "--weights is for --from lightgbm"),
        (("--from", "ubi", log, "--column", "query=q"), "leave --column out"),
        (("--from", "nested", log, "--column", "doc_id=q"), "NAME one of: query, documents"),
        (("--from", "aggregated", log, "--column", "click=q"), "NAME one of: query_id, doc_id"),
        (("--from", "lightgbm", tmp_path / "data.txt", "--items", log), "--items is for logs without"),
        (("--from", "excel", log), "excel"),
    ):
        assert part in refusal(capsys, "convert", *arguments, out)
