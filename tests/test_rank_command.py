from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from fultr import (
    FairRanker,
    InputError,
    PositionBias,
    RandomRanking,
    RankingDataset,
    datasets,
    evaluate,
    save,
    simulate_clicks,
    write_dataset,
    write_letor,
    write_log,
)
from fultr.logs.features import matching_columns
from fultr.policy import log_prob_of_positions, ranking_log_prob, sample_positions
from fultr.policy.ranking_files import read_scored
from tests import commands
from tests.commands import result_of

BIAS = PositionBias.power(1.0)


@pytest.fixture(scope="module")
def held_out() -> RankingDataset:
    return datasets.synthetic(queries=60, seed=0).test


@pytest.fixture(scope="module")
def ranker() -> FairRanker:
    data = datasets.synthetic(queries=60, seed=0)
    log = simulate_clicks(data.train, RandomRanking(), BIAS, clicks=500, seed=0)
    return FairRanker(fairness_weight=1.0, l2=0.01).fit(log)


@pytest.fixture(scope="module")
def policy(ranker: FairRanker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(ranker, tmp_path_factory.mktemp("run") / "policy.safetensors")


@pytest.fixture(scope="module")
def items(held_out: RankingDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("items") / "items.parquet"
    write_dataset(held_out, path)
    return path


@pytest.fixture(scope="module")
def small_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a policy of two named features, whose score is salary - 2 distance."""
    return save(small_ranker(["salary", "distance"]), tmp_path_factory.mktemp("small") / "small.safetensors")


@pytest.fixture(scope="module")
def numbered_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(small_ranker([]), tmp_path_factory.mktemp("numbered") / "numbered.safetensors")


def small_ranker(names: list[str], model: str | nn.Module = "linear") -> FairRanker:
    features = np.random.default_rng(0).normal(size=(40, 2))
    data = RankingDataset(
        features,
        np.arange(0, 41, 4),
        relevance=np.tile([1, 0, 0, 1], 10),
        group=["a", "b"] * 20,
        feature_names=names,
        query_id=np.arange(10),
    )
    settings: dict[str, Any] = {"position_bias": BIAS, "l2": 0.1, "scale_features": False, "model": model}
    trained = FairRanker(1.0, **settings).fit(data)
    if model == "linear":
        with torch.no_grad():
            next(trained.scorer_.parameters()).copy_(torch.tensor([1.0, -2.0]))
    return trained


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    return commands.refusal(capsys, "rank", *arguments)


def table_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> pd.DataFrame:
    code, out, err = result_of(capsys, "rank", *arguments)
    assert code == 0, err
    return table_of_text(out)


def table_of_text(text: str) -> pd.DataFrame:
    # unlike some versions of pandas, Arrow reads every number back as it was
    return arrow_csv.read_csv(io.BytesIO(text.encode())).to_pandas()


def log_probs(
    table: pd.DataFrame, data: RankingDataset, scores: NDArray[np.float64]
) -> list[tuple[float, float, list[int]]]:
    """Return of each ranking its log-probability as it should be, as it is, and its items within the list."""
    assert data.query_id is not None
    assert data.doc_id is not None
    found = []
    for (query, _), shown in table.groupby(["query_id", "sample"], sort=False):
        number = data.query_id.tolist().index(query)
        own = slice(int(data.offsets[number]), int(data.offsets[number + 1]))
        documents = data.doc_id[own].tolist()
        ranking = [documents.index(document) for document in shown["doc_id"]]
        np.testing.assert_array_equal(shown["position"], np.arange(1, len(shown) + 1))
        np.testing.assert_array_equal(shown["score"], scores[own][ranking])
        assert shown["ranking_log_prob"].nunique() == 1
        expected = float(ranking_log_prob(torch.tensor(scores[own]), torch.tensor(ranking)))
        found.append((expected, float(shown["ranking_log_prob"].iloc[0]), ranking))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [None, 1, 7, 100])
@pytest.mark.parametrize("ending", ["txt", "parquet", "arrow", "csv"])
def test_every_ranking_has_its_items_and_its_log_probability(
    held_out: RankingDataset,
    ranker: FairRanker,
    policy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ending: str,
    top_k: int | None,
) -> None:
    path = write_items(held_out, tmp_path / f"items.{ending}")
    arguments = [] if top_k is None else ["--top-k", top_k]
    table = table_of(capsys, policy, path, "--samples", 3, *arguments)
    named = [] if ending == "txt" else ["group"]
    columns = ["query_id", "sample", "position", "doc_id", "score", *named, "ranking_log_prob"]
    assert list(table) == columns
    found = log_probs(table, held_out, ranker.predict(held_out))
    assert len(found) == 3 * len(held_out)
    for (expected, given, ranking), length in zip(found, np.repeat(held_out.lengths, 3), strict=True):
        assert given == pytest.approx(expected, rel=1e-12)
        assert len(set(ranking)) == len(ranking) == min(top_k or length, length)
    if named:
        assert held_out.doc_id is not None
        assert held_out.query_id is not None
        queries = held_out.query_id[held_out.list_of_row].tolist()
        keys = zip(queries, held_out.doc_id.tolist(), strict=True)
        known = dict(zip(keys, held_out.group, strict=True))
        groups = [held_out.group_names[known[key]] for key in zip(table.query_id, table.doc_id, strict=True)]
        assert table["group"].tolist() == groups


def write_items(data: RankingDataset, path: Path) -> Path:
    if path.suffix == ".txt":
        write_letor(data, path)
    elif path.suffix == ".csv":
        write_dataset(data, path.with_suffix(".parquet"))
        table = pq.read_table(path.with_suffix(".parquet")).to_pandas()
        table.drop(columns="relevance").to_csv(path, index=False)
    else:
        write_dataset(data, path)
    return path


def test_rankings_are_those_of_the_plackett_luce_model_of_the_seed(
    held_out: RankingDataset,
    ranker: FairRanker,
    policy: Path,
    items: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ("rank", policy, items, "--samples", 4, "--top-k", 5, "--seed", 11)
    first = result_of(capsys, *arguments)[1]
    assert result_of(capsys, *arguments)[1] == first
    assert result_of(capsys, *arguments[:-1], 12)[1] != first
    lists = np.repeat(np.arange(len(held_out)), 4)
    scores, rng = ranker.predict(held_out), np.random.default_rng(11)
    positions = sample_positions(scores, held_out.offsets, lists, rng, top_k=5)
    drawn = table_of_text(first)
    assert held_out.doc_id is not None
    documents = np.concatenate([held_out[int(number)].doc_id for number in lists])
    starts = np.concatenate([[0], np.cumsum(held_out.lengths[lists])])
    for number, (_, shown) in enumerate(drawn.groupby(["query_id", "sample"], sort=False)):
        own = slice(starts[number], starts[number + 1])
        in_order = documents[own][np.argsort(positions[own])]
        assert shown["doc_id"].tolist() == in_order[-5:].tolist()
    for cells in (1, 50, 333):  # within a list, a list or two, several lists
        monkeypatch.setattr("fultr.policy.drawn_rankings.CELLS_A_BLOCK", cells)
        assert result_of(capsys, *arguments)[1] == first
    monkeypatch.setattr("fultr.policy.ranking_files.ROWS_A_GROUP", 90)
    out = tmp_path / "rankings.parquet"
    assert result_of(capsys, *arguments, "--out", out)[0] == 0
    groups = pq.ParquetFile(out).metadata  # 4 lists at a time, 80 rows each, until there are enough
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [160, 160, 80]
    pd.testing.assert_frame_equal(pq.read_table(out).to_pandas(), drawn, check_dtype=False)
    assert result_of(capsys, *arguments, "--out", tmp_path / "rankings.csv")[0] == 0
    assert (tmp_path / "rankings.csv").read_text() == first


@pytest.mark.statistical
def test_the_first_position_follows_the_softmax(
    held_out: RankingDataset,
    ranker: FairRanker,
    policy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    samples = 5_000
    # of the lists, those whose first position is the least certain
    scores = [ranker.predict(held_out[number]) for number in range(len(held_out))]
    flattest = np.argsort([np.exp(one - one.max()).max() / np.exp(one - one.max()).sum() for one in scores])[
        :3
    ]
    write_dataset(held_out[flattest], tmp_path / "items.parquet")
    arguments = (policy, tmp_path / "items.parquet", "--samples", samples, "--top-k", 2, "--seed", 5)
    table = table_of(capsys, *arguments)
    for number in flattest:
        one = held_out[int(number)]
        assert one.query_id is not None
        assert one.doc_id is not None
        chance = np.exp(scores[number]) / np.exp(scores[number]).sum()
        shown = table[(table.query_id == one.query_id[0]) & (table.position == 1)]
        counts = shown["doc_id"].value_counts().reindex(one.doc_id.tolist(), fill_value=0).to_numpy()
        assert counts.sum() == samples
        often = chance * samples >= 5
        observed = np.append(counts[often], counts[~often].sum())
        expected = np.append(chance[often], chance[~often].sum()) * samples
        assert often.sum() > 3
        assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("top_k", [None, 4])
def test_deterministic_rankings_are_the_mode(
    held_out: RankingDataset,
    ranker: FairRanker,
    policy: Path,
    items: Path,
    capsys: pytest.CaptureFixture[str],
    top_k: int | None,
) -> None:
    arguments = [] if top_k is None else ["--top-k", top_k]
    table = table_of(capsys, policy, items, "--deterministic", *arguments)
    assert set(table["sample"]) == {1}
    scores, positions = ranker.predict(held_out), ranker.rank(held_out)
    assert held_out.doc_id is not None
    best = [
        held_out.doc_id[start + np.argsort(positions[start:stop])][:top_k]
        for start, stop in zip(held_out.offsets[:-1], held_out.offsets[1:], strict=True)
    ]
    np.testing.assert_array_equal(table["doc_id"], np.concatenate(best))
    for expected, given, _ in log_probs(table, held_out, scores):
        assert given == pytest.approx(expected, rel=1e-12)
    again = table_of(capsys, policy, items, "--deterministic", *arguments, "--seed", 9)
    pd.testing.assert_frame_equal(again, table)


def test_every_call_draws_afresh_and_its_seed_repeats_it(
    policy: Path, items: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rankings.csv"
    code, text, _ = result_of(capsys, "rank", policy, items, "--out", out, "--json")
    assert code == 0
    first, seed = out.read_text(), json.loads(text)["seed"]
    assert result_of(capsys, "rank", policy, items)[1] != first
    assert result_of(capsys, "rank", policy, items, "--seed", seed)[1] == first
    _, text, _ = result_of(capsys, "rank", policy, items, "--out", out, "--json", "--deterministic")
    assert json.loads(text)["seed"] is None


@pytest.mark.parametrize("top_k", [None, 3])
def test_rotated_rankings_are_those_of_the_library(
    held_out: RankingDataset,
    ranker: FairRanker,
    policy: Path,
    items: Path,
    top_k: int | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = (policy, items, "--rotate", 4, *([] if top_k is None else ["--top-k", top_k]), "--seed", 3)
    table = table_of(capsys, *arguments)
    expected = ranker.rotation(held_out, 4, top_k=top_k, seed=3)
    assert held_out.doc_id is not None
    assert held_out.query_id is not None
    ids = zip(held_out.query_id[held_out.list_of_row].tolist(), held_out.doc_id.tolist(), strict=True)
    row = {both: number for number, both in enumerate(ids)}
    shown = zip(table["query_id"].tolist(), table["doc_id"].tolist(), strict=True)
    found = np.zeros((4, held_out.rows), dtype=int)
    found[table["sample"] - 1, [row[both] for both in shown]] = table["position"]
    np.testing.assert_array_equal(found, expected)
    for cells in (1, 50, 333):
        monkeypatch.setattr("fultr.policy.drawn_rankings.CELLS_A_BLOCK", cells)
        pd.testing.assert_frame_equal(table_of(capsys, *arguments), table)


def test_always_the_same_ranking_is_warned_of(
    ranker: FairRanker,
    policy: Path,
    items: Path,
    held_out: RankingDataset,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, _, err = result_of(capsys, "rank", policy, items, "--deterministic")
    assert err.count("\n") == 1
    assert "warning: shares of exposure if the policy draws rankings" in err
    assert "--rotate 8" in err
    for stochastic in (True, False):
        shares = evaluate(ranker, held_out, position_bias=BIAS, stochastic=stochastic).exposure_share
        assert all(f"{share:.1%}" in err for share in shares.values())
    # disparities, where there is relevance or clicks to measure them by
    _, _, err = result_of(capsys, "evaluate", policy, items, "--deterministic")
    for stochastic in (True, False):
        found = evaluate(ranker, held_out, position_bias=BIAS, stochastic=stochastic)
        assert f"{found.disparity:+.4f}" in err
    assert "warning" not in result_of(capsys, "rank", policy, items)[2]
    assert "warning" not in result_of(capsys, "evaluate", policy, items)[2]


def run_of(path: Path) -> list[ir_measures.ScoredDoc]:
    return list(ir_measures.read_trec_run(str(path)))  # type: ignore[no-untyped-call]


def test_a_trec_run_is_read_by_other_tools(
    held_out: RankingDataset,
    ranker: FairRanker,
    policy: Path,
    items: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "rankings.trec"
    arguments = (policy, items, "--samples", 3, "--top-k", 6, "--seed", 2)
    assert result_of(capsys, "rank", *arguments, "--out", out)[0] == 0
    lines = [line.split() for line in out.read_text().splitlines()]
    assert {len(line) for line in lines} == {6}
    assert {line[5] for line in lines} == {"fultr-1", "fultr-2", "fultr-3"}
    drawn = table_of(capsys, *arguments)
    read = run_of(out)
    assert [one.query_id for one in read] == drawn["query_id"].astype(str).tolist()
    assert [one.doc_id for one in read] == drawn["doc_id"].astype(str).tolist()
    assert [int(line[3]) for line in lines] == drawn["position"].tolist()
    assert [f"fultr-{sample}" for sample in drawn["sample"]] == [line[5] for line in lines]
    for _, one in pd.DataFrame(lines).groupby([0, 5], sort=False):
        assert (np.diff(one[3].astype(int)) == 1).all()
        assert (np.diff(one[4].astype(float)) < 0).all()
    mode = tmp_path / "mode.run"
    assert result_of(capsys, "rank", policy, items, "--deterministic", "--out", mode)[0] == 0
    assert held_out.relevance is not None
    assert held_out.query_id is not None
    assert held_out.doc_id is not None
    judged = [
        ir_measures.Qrel(str(query), str(document), int(relevance))
        for query, document, relevance in zip(
            held_out.query_id[held_out.list_of_row], held_out.doc_id, held_out.relevance, strict=True
        )
    ]
    measured = ir_measures.calc_aggregate([ir_measures.nDCG @ 5], judged, run_of(mode))
    found = ranker.evaluate(held_out, stochastic=False, at=5, intervals=None)
    assert measured[ir_measures.nDCG @ 5] == pytest.approx(found.ndcg, rel=1e-6)


@pytest.mark.slow
def test_output_can_be_piped(policy: Path, items: Path) -> None:
    command = f"{sys.executable} -m fultr rank {policy} {items} --samples 200 --format trec"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -n 2"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2


def test_what_was_written_is_told(
    policy: Path, items: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rankings.dat"
    code, text, err = result_of(
        capsys, "rank", policy.parent, items, "--out", out, "--format", "csv", "--top-k", 2, "--json"
    )
    assert code == 0
    expected = {"file": str(out), "format": "csv", "lists": 20, "samples": 1, "rows": 40}
    told = json.loads(text)
    seed = told.pop("seed")
    assert told == expected
    assert f"wrote {out} (--seed {seed} repeats it)" in err
    assert len(out.read_text().splitlines()) == 41
    rankings = tmp_path / "rankings.parquet"
    assert result_of(capsys, "rank", policy, items, "--out", rankings)[1] == ""
    code, _, err = result_of(capsys, "inspect", rankings)
    assert code == 2
    assert "holds no dataset; it was written as table of rankings" in err
    assert "holds no items to rank but a table of rankings" in refusal(capsys, policy, rankings)


def test_progress_is_shown_on_a_terminal(
    policy: Path,
    items: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    err = result_of(capsys, "rank", policy, items, "--out", tmp_path / "x.csv")[2]
    assert "reading" in err
    assert "ranking" in err


def test_help_says_what_the_log_probability_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = result_of(capsys, "rank", "--help")
    assert code == 0
    assert "fultr rank" in out.split("Example:")[1]
    assert "--json" in out
    assert "NOT the propensity column of a click log" in " ".join(out.split())


def test_ids_and_groups_come_back_as_they_were(
    small_policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = ["a,b", 'say "x"', " spaced ", "äöü", "7", "NA"]
    groups = ["unheard of", None, "a", "b", "other", None]
    frame = {
        "query_id": ["two words", "q"] * 3,  # rows of a query need not stand together
        "doc_id": documents,
        "group": groups,
        "salary": [1, 2, 3, 4, 5, 6],
        "distance": [0.5] * 6,
    }
    for path in (tmp_path / "items.parquet", tmp_path / "items.csv"):
        table = pd.DataFrame(frame)
        table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)
        out = tmp_path / "out.parquet"
        assert result_of(capsys, "rank", small_policy, path, "--deterministic", "--out", out)[0] == 0
        written = pq.read_table(out).to_pydict()
        assert written["query_id"] == ["two words"] * 3 + ["q"] * 3
        assert written["doc_id"] == [documents[row] for row in (4, 2, 0, 5, 3, 1)]
        assert written["group"] == [groups[row] for row in (4, 2, 0, 5, 3, 1)]
        assert written["score"] == [4.0, 2.0, 0.0, 5.0, 3.0, 1.0]
        text = result_of(capsys, "rank", small_policy, path, "--deterministic")[1]
        read = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
        assert read["doc_id"].tolist() == written["doc_id"]
        assert read["group"].tolist() == [group or "" for group in written["group"]]


def test_items_without_ids_are_numbered(
    numbered_policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "items.txt").write_text(
        "0 qid:b 1:3 2:1\n0 qid:a 1:1 2:1\n1 qid:b 1:2 2:0\n2 qid:b 1:9 2:9\n"
    )
    table = table_of(capsys, numbered_policy, tmp_path / "items.txt", "--deterministic")
    assert table["query_id"].tolist() == ["b", "b", "b", "a"]
    assert table["doc_id"].tolist() == [2, 1, 3, 1]
    data = RankingDataset([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], [0, 2, 3])
    write_dataset(data, tmp_path / "no_ids.arrow")
    table = table_of(capsys, numbered_policy, tmp_path / "no_ids.arrow", "--deterministic")
    assert table["query_id"].tolist() == [0, 0, 1]
    assert table["doc_id"].tolist() == [2, 1, 1]


def test_several_lists_of_a_query_are_told_apart(
    held_out: RankingDataset, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "items.parquet"
    write_dataset(replace(held_out[:3], query_id=np.array([5, 6, 5])), path)
    table = table_of(capsys, policy, path, "--samples", 2)
    assert list(table)[:3] == ["query_id", "list", "sample"]
    assert table.groupby("list")["query_id"].unique().map(list).to_dict() == {0: [5], 1: [6], 2: [5]}
    assert (table.groupby(["list", "sample"])["position"].max() == 20).all()
    err = refusal(capsys, policy, path, "--format", "trec")
    assert "one list for a query" in err


def test_a_table_of_documents_of_a_log_can_be_ranked(
    held_out: RankingDataset,
    ranker: FairRanker,
    policy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = simulate_clicks(held_out, RandomRanking(), BIAS, clicks=100, seed=0)
    for form in ("parquet", "csv"):
        write_log(log, tmp_path / f"clicks.{form}")
        table = table_of(capsys, policy, tmp_path / f"clicks.items.{form}", "--samples", 2)
        for expected, given, ranking in log_probs(table, log.data, ranker.predict(log.data)):
            assert given == pytest.approx(expected, rel=1e-12)
            assert len(ranking) == 20
        assert "is a click log" in refusal(capsys, policy, tmp_path / f"clicks.{form}")


JOBS = {
    "title": ["nurse", "cook", "clerk"],
    "feature_distance": [0.0, 1.0, 2.0],
    "query_id": [1, 1, 1],
    "bonus": [9.0, 9.0, 9.0],
    "salary": [1.0, 4.0, 2.0],
    "doc_id": [10, 11, 12],
}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_features_are_found_by_name(
    small_policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    path = tmp_path / f"jobs.{ending}"

    def write(table: dict[str, Any]) -> Path:
        frame = pd.DataFrame(table)
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        return path

    table = table_of(capsys, small_policy, write(JOBS), "--deterministic")
    assert table["doc_id"].tolist() == [11, 10, 12]
    assert table["score"].tolist() == [2.0, 1.0, -2.0]
    without = {name: values for name, values in JOBS.items() if name != "salary"}
    err = refusal(capsys, small_policy, write(without))
    assert "column 'feature_salary': the column is missing" in err
    assert str(path) in err
    err = refusal(capsys, small_policy, write({**JOBS, "distance": JOBS["salary"]}))
    assert "'distance' and 'feature_distance' both could be this feature" in err
    text = {**JOBS, "salary": ["much", "little", "none"]}
    assert "column 'salary'" in refusal(capsys, small_policy, write(text))
    assert "column 'query_id'" in refusal(capsys, small_policy, write({"salary": [1.0], "distance": [1.0]}))
    # a column of that name is not looked at: it is no relevance, as ranking needs none
    assert len(table_of(capsys, small_policy, write({**JOBS, "relevance": ["?"] * 3}))) == 3


def test_listed_features_are_taken_by_name_or_in_their_order(
    small_policy: Path, numbered_policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features, order = [[1.0, 0.0], [4.0, 1.0], [2.0, 2.0]], [11, 10, 12]
    path = tmp_path / "jobs.parquet"
    pq.write_table(pa.table({"query_id": [1] * 3, "doc_id": [10, 11, 12], "features": features}), path)
    for policy in (small_policy, numbered_policy):
        assert table_of(capsys, policy, path, "--deterministic")["doc_id"].tolist() == order
    swapped = RankingDataset(
        np.array(features)[:, ::-1],
        [0, 3],
        query_id=[1],
        doc_id=[10, 11, 12],
        feature_names=["distance", "salary"],
    )
    for ending in ("parquet", "arrow"):
        write_dataset(swapped, tmp_path / f"swapped.{ending}")
        found = table_of(capsys, small_policy, tmp_path / f"swapped.{ending}", "--deterministic")
        assert found["doc_id"].tolist() == order
        assert found["score"].tolist() == [2.0, 1.0, -2.0]
    # a policy that knows its features by number takes named columns in their order
    named = {"query_id": [1] * 3, "doc_id": [10, 11, 12], "x": [1.0, 4.0, 2.0], "y": [0.0, 1.0, 2.0]}
    pq.write_table(pa.table(named), path)
    assert table_of(capsys, numbered_policy, path, "--deterministic")["doc_id"].tolist() == order
    numbers = {"query_id": [1] * 3, "doc_id": [10, 11, 12], "2": [0.0, 1.0, 2.0], "1": [1.0, 4.0, 2.0]}
    pq.write_table(pa.table(numbers), path)
    assert table_of(capsys, numbered_policy, path, "--deterministic")["doc_id"].tolist() == order


def test_columns_are_matched() -> None:
    def found(present: list[str], wanted: list[str]) -> list[int]:
        return matching_columns(present, wanted, None)

    assert found(["b", "a", "c"], ["a", "b"]) == [1, 0]
    assert found(["feature_a", "feature_b"], ["b", "a"]) == [1, 0]
    assert found(["a", "b"], ["feature_b", "feature_a"]) == [1, 0]
    assert found(["feature_a", "a"], ["a", "feature_a"]) == [1, 0]
    assert found(["1", "2", "3"], ["x", "y", "z"]) == [0, 1, 2]
    assert found(["x", "y"], ["1", "2"]) == [0, 1]
    assert found(["2", "1", "0"], ["1", "2"]) == [1, 0]
    for present, wanted in ((["1", "2", "3"], ["1", "2"]), (["1"], ["1", "2"]), (["x"], ["1", "2"])):
        with pytest.raises(InputError, match="the policy was trained on 2 features"):
            found(present, wanted)
    for present in (["x", "z"], []):
        with pytest.raises(InputError, match="column 'y': the column is missing"):
            found(present, ["y"])
    with pytest.raises(InputError, match="column 'feature_a': the column is missing"):
        found(["a"], ["a", "feature_a"])


def test_items_are_scored_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However wide and long a table is, only some of its rows are there at a time."""
    monkeypatch.setattr("fultr.data.table_files.ROWS_A_BATCH", 40)
    monkeypatch.setattr("fultr.policy.ranking_files.ROWS_AT_ONCE", 16)
    data = RankingDataset(np.random.default_rng(0).normal(size=(100, 3)), [0, 40, 100], query_id=[1, 2])
    for ending in ("parquet", "arrow"):
        path = tmp_path / f"items.{ending}"
        write_dataset(data, path)
        seen: list[int] = []

        def score(block: RankingDataset, seen: list[int] = seen) -> NDArray[np.float64]:
            seen.append(block.rows)
            return np.asarray(block.features.sum(axis=1, dtype=np.float64))

        scored = read_scored(path, ["1", "2", "3"], score)
        assert seen == [16, 16, 8] * 2 + [16, 4]
        assert scored.features.shape == (100, 1)
        np.testing.assert_allclose(scored.features[:, 0], data.features.sum(axis=1), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(scored.offsets, data.offsets)
    rows = [f"1,{row},{'x' if row == 77 else 0}" for row in range(100)]
    (tmp_path / "items.csv").write_text("\n".join(["query_id,doc_id,price", *rows]))
    with pytest.raises(InputError, match=r"items.csv, row 79, column 'price': must be a number \(got 'x'\)"):
        read_scored(tmp_path / "items.csv", ["price"], lambda block: block.features[:, 0].astype(np.float64))


def test_policies_that_cannot_be_used_are_named(
    policy: Path,
    items: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damaged = bytearray(policy.read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged.safetensors").write_bytes(damaged)
    assert "is damaged or incomplete" in refusal(capsys, tmp_path / "damaged.safetensors", items)
    (tmp_path / "short.safetensors").write_bytes(policy.read_bytes()[:-5])
    assert "is damaged or incomplete" in refusal(capsys, tmp_path / "short.safetensors", items)
    assert "not a policy that fultr saved" in refusal(capsys, items, items)
    assert "without a policy.safetensors" in refusal(capsys, tmp_path, items)
    assert "no such file" in refusal(capsys, tmp_path / "none.safetensors", items)
    assert "cannot be read" in refusal(capsys, "x" * 5000, items)
    own = save(small_ranker(["salary", "distance"], nn.Linear(2, 1)), tmp_path / "own.safetensors")
    err = refusal(capsys, own, items)
    assert "torch module of its maker's own, Linear" in err
    assert "cannot be loaded from the command line" in err
    monkeypatch.setattr("fultr.training.policy_files.FORMAT_VERSION", 2)
    newer = save(small_ranker([]), tmp_path / "newer.safetensors")
    monkeypatch.undo()
    assert "install a newer fultr" in refusal(capsys, newer, items)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("items.parquet", b"", "is empty"),
        ("items.txt", b"", "is empty"),
        ("items.txt", b"# nothing\n", "has no line of data"),
        ("items.csv", b"query_id,doc_id,salary,distance\n", "has no rows"),
        ("items.csv", b"query_id,doc_id,salary,distance\n1,1,2,3\n1,1,2,3\n", "column 'doc_id'"),
        ("items.csv", b"query_id,salary,distance\n1,2,\n", "a feature must be a finite float32"),
        ("items.csv", b"query_id,salary,distance\n,2,1\n", "an id is missing"),
        ("items.parquet", b"PAR1 and nothing else", "no readable Parquet file"),
        ("items.arrow", b"ARROW1 and nothing else", "no readable Arrow file"),
        ("items.txt", b"1 qid:1 1:2\n", "trained on 2 features (got 1)"),
        ("items.txt", b"1 qid:1 1:2 3:2\n", "trained on 2 features (got 3)"),
        ("items.xlsx", b"x", "must end in one of"),
    ],
)
def test_items_that_cannot_be_ranked_are_named(
    small_policy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes,
    problem: str,
) -> None:
    (tmp_path / name).write_bytes(content)
    err = refusal(capsys, small_policy, tmp_path / name)
    assert problem in err
    assert name in err


def test_options_that_do_not_go_together_are_refused(
    policy: Path, items: Path, small_policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--json needs --out" in refusal(capsys, policy, items, "--json")
    assert "give --out" in refusal(capsys, policy, items, "--format", "parquet")
    assert "give --samples or --deterministic" in refusal(
        capsys, policy, items, "--deterministic", "--samples", 2
    )
    assert "rankings are files that end in" in refusal(capsys, policy, items, "--out", tmp_path / "x.json")
    assert "folder does not exist" in refusal(capsys, policy, items, "--out", tmp_path / "no" / "x.csv")
    before = items.read_bytes()
    assert "would be written over" in refusal(capsys, policy, items, "--out", items)
    assert items.read_bytes() == before
    for option in ("--samples", "--top-k"):
        assert option in refusal(capsys, policy, items, option, 0)
    frame = pd.DataFrame({"query_id": ["two words"], "doc_id": [1], "salary": [1.0], "distance": [1.0]})
    frame.to_parquet(tmp_path / "jobs.parquet")
    err = refusal(capsys, small_policy, tmp_path / "jobs.parquet", "--out", tmp_path / "x.trec")
    assert "an id in a TREC run must be one word" in err
    assert not (tmp_path / "x.trec").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet", "run"])
def test_what_fails_midway_leaves_the_old_file(
    policy: Path,
    items: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
) -> None:
    out = tmp_path / f"rankings.{ending}"
    out.write_text("old")
    times = iter(range(100))

    def fail_later(*arguments: Any) -> Any:
        if next(times) == 3:
            raise RuntimeError("surprise")
        return log_prob_of_positions(*arguments)

    monkeypatch.setattr("fultr.policy.drawn_rankings.log_prob_of_positions", fail_later)
    monkeypatch.setattr("fultr.policy.drawn_rankings.CELLS_A_BLOCK", 20)
    code, _, err = result_of(capsys, "rank", policy, items, "--out", out)
    assert code == 1
    assert "surprise" in err
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
