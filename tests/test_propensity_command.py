"""`fultr propensity`, on logs whose true position bias is known, and columns about impressions."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from numpy.typing import ArrayLike, NDArray

from fultr import (
    ClickLog,
    ClickNoise,
    InputError,
    Planting,
    PositionBias,
    PositionBiasByContext,
    RandomRanking,
    RankingDataset,
    WriteError,
    load,
    read_log,
    simulate_clicks,
    write_log,
)
from fultr.cli.options import position_bias
from fultr.clicks import BiasEstimate, estimate_bias, read_bias, read_position_bias
from fultr.data.columns import flags, integers_between, text_labels
from fultr.logs.reading import LogOptions, read_impressions
from fultr.plots import draw_bias
from tests.commands import json_of, refusal, result_of
from tests.shown_jobs import job_board
from tests.test_bias_estimation import BIAS, NOISE, TRUE, Swaps, lists_of, ranker_log, scorer, swap_log
from tests.weekly_jobs import week_of_jobs

STEEP = PositionBias([1.0, 0.3, 0.2, 0.1, 0.05])


def table_of(log: ClickLog, path: Path, **columns: ArrayLike) -> pa.Table:
    """Write a log and return its table with more columns, given by impression."""
    write_log(log, path)
    table = pq.read_table(path)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(np.asarray(values)[table["impression_id"].to_numpy()]))
    return table


def written(log: ClickLog, path: Path, **columns: ArrayLike) -> Path:
    pq.write_table(table_of(log, path, **columns), path)
    return path


@cache
def swaps(impressions: int = 30_000) -> tuple[ClickLog, NDArray[np.int64]]:
    return swap_log(1, impressions)


@cache
def fixed_log() -> ClickLog:
    """Return a log of one fixed ranker: nothing but its features tells examination from relevance."""
    return simulate_clicks(lists_of(), scorer(0), BIAS, NOISE, impressions=4_000, seed=0)


@pytest.fixture(scope="module")
def swap_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log, rank = swaps()
    return written(log, tmp_path_factory.mktemp("swaps") / "clicks.parquet", swap_rank=rank)


@pytest.fixture(scope="module")
def ranker_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log, ranker = ranker_log(1, 30_000)
    names = np.array(["old", "new", "mine", "yours"])[ranker]
    return written(log, tmp_path_factory.mktemp("rankers") / "clicks.parquet", ranker=names)


@pytest.fixture(scope="module")
def random_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = simulate_clicks(lists_of(), RandomRanking(), BIAS, NOISE, impressions=8_000, seed=1)
    return written(log, tmp_path_factory.mktemp("random") / "clicks.parquet")


@pytest.fixture(scope="module")
def fixed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(fixed_log(), tmp_path_factory.mktemp("fixed") / "clicks.parquet")


def holds(estimate: BiasEstimate, true: ArrayLike = TRUE) -> bool:
    return bool(np.all((np.array(estimate.low) <= true) & (np.array(estimate.high) >= true)))


@pytest.mark.parametrize(
    ("file", "method", "options"),
    [
        ("swap_file", "swap", ("--swap-column", "swap_rank")),
        ("ranker_file", "harvest", ("--ranker-column", "ranker")),
        ("random_file", "harvest", ("--randomised",)),
        ("random_file", "em", ()),
        ("random_file", "em", ("--relevance", "features")),
    ],
)
def test_each_method_recovers_known_examination_and_its_file_is_the_estimate(
    file: str,
    method: str,
    options: tuple[str, ...],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log, out = request.getfixturevalue(file), tmp_path / "bias.json"
    content = json_of(capsys, "propensity", log, "--method", method, *options, "--level", 0.999, "--out", out)
    found = read_bias(out)
    assert found.method == method
    assert found.values == pytest.approx(TRUE, rel=0.15)
    assert holds(found)
    assert found.values[0] == found.low[0] == found.high[0] == 1
    assert found.fit is not None
    assert found.fit.p_value > 1e-4
    assert content["files"] == [str(out)]
    (estimate,) = content["estimates"]
    assert {name: estimate[name] for name in found.to_dict()} == found.to_dict()
    assert position_bias(None, out) == PositionBias(found.values)
    assert list(tmp_path.iterdir()) == [out]


def test_the_command_estimates_what_the_library_does(
    swap_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, rank = swaps()
    expected = estimate_bias(log, "swap", swap_rank=rank, seed=3, least_clicks=5, longest=4, level=0.9)
    options = ("--seed", 3, "--least-clicks", 5, "--longest", 4, "--level", 0.9, "--out", tmp_path / "b.json")
    assert result_of(capsys, "propensity", swap_file, *options)[0] == 0
    # position 5 was left out, and the log shows it
    assert expected.tail == "power"
    assert read_bias(tmp_path / "b.json") == expected


def test_the_table_says_everything_by_position(swap_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = result_of(capsys, "propensity", swap_file)
    assert code == 0
    assert err == ""  # nothing is written unless --out is given
    log, rank = swaps()
    found = estimate_bias(log, "swap", swap_rank=rank)
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    columns = ["position", "value", "low", "high", "raw", "impressions", "clicks", "comparisons"]
    assert lines["position"] == columns
    for at in range(5):
        numbers = [f"{column[at]:.4f}" for column in (found.values, found.low, found.high, found.raw)]
        counts = [f"{column[at]:,}" for column in (found.impressions, found.clicks, found.pairs)]
        assert lines[str(at + 1)][1:] == numbers + counts
    assert f"{found.eta:.3f} ({found.eta_low:.3f} to {found.eta_high:.3f})" in out
    assert "relative to position 1, v_1 = 1" in out
    assert found.fit is not None
    assert f"p = {found.fit.p_value:.3g}" in out
    assert "the curve is no power law" in out
    assert "unknown after position 5" in out


@pytest.mark.parametrize(
    ("file", "method", "reason"),
    [
        ("swap_file", "swap", "column 'swap_rank' tells what was exchanged"),
        ("ranker_file", "harvest", "by different rankers (column 'ranker')"),
        ("random_file", "harvest", "no column tells of exchanges"),
    ],
)
def test_without_a_method_the_best_supported_is_taken_and_why_is_said(
    file: str, method: str, reason: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    log = request.getfixturevalue(file)
    content = json_of(capsys, "propensity", log)
    assert content["method"] == method
    assert reason in content["why"]
    assert f"{method}: {content['why']}" in result_of(capsys, "propensity", log)[1]


def test_em_is_taken_where_rankers_say_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = simulate_clicks(lists_of(), RandomRanking(), BIAS, NOISE, impressions=3_000, seed=1)
    path = written(log, tmp_path / "one.parquet", ranker=["only"] * len(log))
    content = json_of(capsys, "propensity", path)
    assert content["method"] == "em"
    assert "no document was shown at several positions by different rankers" in content["why"]
    # chance moves items, whatever ranker it was: then the column says nothing
    content = json_of(capsys, "propensity", path, "--randomised")
    assert content["method"] == "harvest"
    assert content["columns"] == {}
    assert content["estimates"][0]["notes"] == []


def test_methods_are_compared_in_a_table_and_a_picture(
    swap_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bias.json"
    arguments = ("propensity", swap_file, "--compare", "--randomised", "--out", out)
    code, printed, err = result_of(capsys, *arguments)
    assert code == 0
    assert "Wherever two methods have an interval, these meet." in printed
    assert (tmp_path / "bias.png").read_bytes().startswith(b"\x89PNG")
    assert f"wrote {out}, {tmp_path / 'bias.png'}" in err
    pictures = [tmp_path / "other.svg", tmp_path / "other.png"]
    content = json_of(capsys, *arguments, "--plot", pictures[0], "--plot", pictures[1])
    assert content["files"] == [str(out), *map(str, pictures)]
    text = pictures[0].read_text()
    assert "<svg" in text
    assert "harvest" in text
    assert "intervals do not meet" not in text
    (estimate,) = content["estimates"]
    log, rank = swaps()
    for row, position in zip(estimate["comparison"]["table"], range(1, 6), strict=True):
        assert row["position"] == position
        assert not row["disagree"]
    harvest = estimate_bias(log, "harvest", randomised=True)
    assert [row["harvest"]["value"] for row in estimate["comparison"]["table"]] == pytest.approx(
        harvest.values
    )
    assert read_bias(out) == estimate_bias(log, "swap", swap_rank=rank)  # the one chosen, not another
    assert estimate["comparison"]["left_out"] == {}


def in_fashion() -> tuple[ClickLog, NDArray[np.int64]]:
    """Return a log in which documents go up because of their clicks, and are exchanged at random besides."""
    rng = np.random.default_rng(0)
    queries, times = 200, 200
    data = RankingDataset(
        np.zeros((2 * queries, 1)),
        np.arange(0, 2 * queries + 1, 2),
        query_id=np.arange(queries),
        doc_id=[1, 2] * queries,
    )
    lists = np.repeat(np.arange(queries), times)
    first = rng.integers(1, 3, size=lists.size)
    swap = rng.random(lists.size) < 0.3
    position = np.column_stack([first, 3 - first])
    relevance = np.where(position == 1, 0.8, 0.2)
    position[swap] = position[swap][:, ::-1]
    click = rng.random(position.shape) < relevance * np.where(position == 1, 1.0, 0.5)
    return ClickLog(data, lists, position.ravel(), click.ravel()), np.where(swap, 2, 1)


def test_disagreement_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, rank = in_fashion()
    path = written(log, tmp_path / "fashion.parquet", drawn=rank)
    picture = tmp_path / "bias.svg"
    arguments = ("propensity", path, "--compare", "--swap-column", "drawn", "--plot", picture)
    content = json_of(capsys, *arguments)
    comparison = content["estimates"][0]["comparison"]
    assert {"position": 2, "methods": ["swap", "harvest"]} in comparison["disagreements"]
    assert comparison["table"][1]["disagree"]
    assert any("moved them because of their clicks" in note for note in comparison["notes"]["harvest"])
    code, out, _ = result_of(capsys, *arguments)
    assert code == 0
    assert "At position 2 the intervals of swap and harvest do not meet." in out
    assert "harvest: Why documents changed their positions is not known" in out
    assert "intervals do not meet" in picture.read_text()


def test_methods_that_are_left_out_of_a_comparison_are_told(
    random_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json_of(capsys, "propensity", random_file, "--compare", "--randomised")
    assert content["estimates"][0]["comparison"]["left_out"] == {"swap": "no column tells of exchanges"}
    assert content["files"] == []
    log = read_log(random_file)
    path = written(log, tmp_path / "none.parquet", swap_rank=np.zeros(len(log), dtype=np.int64))
    code, out, _ = result_of(capsys, "propensity", path, "--compare", "--method", "em")
    assert code == 0
    assert "swap is left out: column 'click': no position has at least 10 clicks" in out
    assert "smaller --least-clicks" in out


def two_devices(path: Path) -> Path:
    phone, rank = swap_log(1, 12_000, STEEP)
    desk, other = swap_log(2, 12_000, BIAS)
    log = ClickLog(
        phone.data,
        np.concatenate([phone.lists, desk.lists]),
        np.concatenate([phone.position, desk.position]),
        np.concatenate([phone.click, desk.click]),
    )
    device = np.array(["phone"] * len(phone) + ["desktop/de"] * len(desk))
    device[:20] = "tablet"
    return written(log, path, swap_rank=np.concatenate([rank, other]), device=device)


def test_each_context_gets_a_curve_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = two_devices(tmp_path / "clicks.parquet"), tmp_path / "bias.json"
    arguments = ("propensity", path, "--by", "device", "--level", 0.999, "--out", out)
    code, text, err = result_of(capsys, *arguments, "--plot", tmp_path / "bias.svg", "--json")
    assert code == 0
    content = json.loads(text)
    assert content["files"] == [str(out), str(tmp_path / "bias.svg")]
    assert list(content["refused"]) == ["tablet"]
    assert f"fultr: warning: {out} has no curve for device tablet" in err
    bias = read_position_bias(out)
    assert isinstance(bias, PositionBiasByContext)
    assert (bias.column, list(bias.curves)) == ("device", ["desktop/de", "phone"])
    desk, phone = bias.curves.values()
    assert isinstance(desk, BiasEstimate)
    assert isinstance(phone, BiasEstimate)
    assert holds(desk, TRUE)
    assert holds(phone, STEEP.values)
    assert phone.high[1] < desk.low[1]
    assert phone.context == ("device", "phone")
    assert sum(phone.impressions[:1] + desk.impressions[:1]) == 24_000 - 20
    with pytest.raises(InputError, match="holds a curve for each context"):
        read_bias(out)
    picture = (tmp_path / "bias.svg").read_text()
    assert "device phone" in picture
    code, printed, err = result_of(capsys, *arguments)
    assert code == 0
    assert "Examination with device phone" in printed
    assert "device tablet has no curve: no position has at least 10 clicks" in printed
    assert f"wrote {out}\n" in err


def test_contexts_can_be_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = two_devices(tmp_path / "clicks.parquet"), tmp_path / "b.json"
    arguments = ("propensity", path, "--by", "device", "--compare", "--out", out, "--json")
    content = json.loads(result_of(capsys, *arguments)[1])
    assert [len(one["comparison"]["table"]) for one in content["estimates"]] == [5, 5]
    assert content["files"] == [str(out), str(tmp_path / "b.png")]


def test_positions_without_enough_data_are_said_and_not_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bias = PositionBias([1.0, 0.5, 0.0, 0.4, 0.001])
    log = simulate_clicks(lists_of(), RandomRanking(), bias, impressions=4_000, seed=0)
    path, out = written(log, tmp_path / "gaps.parquet"), tmp_path / "bias.json"
    arguments = ("propensity", path, "--randomised", "--out", out)
    code, printed, _ = result_of(capsys, *arguments, "--tail", "error")
    assert code == 0
    assert "Not enough data at positions 3, 5" in printed
    assert "unknown after position 2, and longer lists are refused" in printed
    (third,) = (line.split() for line in printed.splitlines() if line.startswith("3 "))
    assert third[1:5] == ["-", "-", "-", "-"]
    assert third[5:7] == ["4,000", "0"]
    used = position_bias(None, out)
    assert used is not None
    with pytest.raises(InputError, match="lies beyond the position bias"):
        used.at([3])
    code, printed, _ = result_of(capsys, *arguments)
    assert code == 0
    assert " after position 4, and at position 3: it is fitted to all positions" in printed
    found, used = read_bias(out), position_bias(None, out)
    assert used == found.to_position_bias("power")
    assert used.beyond == found.power_law().eta
    assert found.insufficient == (3, 5)


def test_a_policy_is_trained_and_evaluated_with_the_bias_that_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, rank = swaps(3_000)
    path = written(ClickLog(log.data, log.lists, log.position, log.click), tmp_path / "log.parquet", k=rank)
    out, run = tmp_path / "bias.json", tmp_path / "run"
    train = ("train", path, "--max-disparity", 0.3, "--l2", 0.1, "--out", run)
    assert "give --eta 1 or --bias FILE" in refusal(capsys, *train)
    json_of(capsys, "propensity", path, "--swap-column", "k", "--out", out)
    json_of(capsys, *train, "--bias", out)
    assert load(run / "policy.safetensors").position_bias_ == PositionBias(read_bias(out).values)
    with_bias = json_of(capsys, "evaluate", run, path, "--bias", out)
    assert with_bias["dcg"] != json_of(capsys, "evaluate", run, path, "--eta", 0)["dcg"]


def test_exchanges_with_arms_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, made = swaps()
    rng = np.random.default_rng(0)
    drawn = np.where(made > 1, made, rng.choice([2, 3, 4, 5], size=len(log), p=[0.4, 0.3, 0.2, 0.1]))
    path = written(log, tmp_path / "arms.parquet", swap_rank=drawn, swapped=made > 1)
    expected = estimate_bias(log, "swap", swap_rank=drawn, swapped=made > 1)
    content = json_of(capsys, "propensity", path)
    assert content["columns"] == {"swap_rank": "swap_rank", "swapped": "swapped"}
    assert content["estimates"][0]["values"] == list(expected.values)
    # where every exchange drawn was made, the column says nothing new, and those of 1 are the control
    path = written(log, tmp_path / "all.parquet", swap_rank=made, done=(made > 1).astype(int))
    content = json_of(capsys, "propensity", path, "--swapped-column", "done")
    assert content["estimates"][0]["values"] == list(estimate_bias(log, "swap", swap_rank=made).values)


def test_rows_in_any_order_and_of_text_say_the_same(
    swap_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pq.read_table(swap_file).slice(0, 40_000)
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    shuffled = shuffled.rename_columns({"impression_id": "search", "swap_rank": "k"}).drop_columns(["group"])
    arrow_csv.write_csv(shuffled, tmp_path / "log.csv")
    pq.write_table(table, tmp_path / "log.parquet")
    renamed = ("--column", "impression_id=search", "--swap-column", "k")
    one = json_of(capsys, "propensity", tmp_path / "log.csv", *renamed)["estimates"][0]
    other = json_of(capsys, "propensity", tmp_path / "log.parquet", "--method", "swap")["estimates"][0]
    for name in ("values", "insufficient", "queries"):
        assert one[name] == other[name]


def test_documents_without_ids_are_told_apart_by_their_features(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = lists_of()
    # two lists of each query: without features, an item of one would be taken for one of the other
    data = RankingDataset(
        whole.features, whole.offsets, query_id=np.arange(len(whole)) // 2, relevance=whole.relevance
    )
    log = simulate_clicks(data, RandomRanking(), BIAS, NOISE, impressions=3_000, seed=0)
    path = written(log, tmp_path / "log.parquet")
    (found,) = json_of(capsys, "propensity", path, "--randomised")["estimates"]
    assert found["values"] == pytest.approx(estimate_bias(log, "harvest", randomised=True).values)
    assert min(row["pairs"] for row in found["positions"]) > 0.9 * data.rows


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_columns_about_impressions_come_in_the_order_of_the_log(tmp_path: Path, ending: str) -> None:
    log = simulate_clicks(
        lists_of(20),
        Swaps(RandomRanking()),
        PositionBias.power(1.0),
        ClickNoise(0.9, 0.1),
        impressions=300,
        planting=Planting(0.3, (1, 3)),
        seed=0,
    )
    rng = np.random.default_rng(0)
    told = {
        "device": rng.choice(["phone", "desk", "ä$"], size=300),
        "rank": rng.integers(0, 6, size=300),
        "made": rng.random(300) < 0.5,
    }
    table = table_of(log, tmp_path / "log.parquet", **told)
    table = table.take(rng.permutation(len(table)))
    path = tmp_path / f"shuffled.{ending}"
    if ending == "csv":
        arrow_csv.write_csv(table.drop_columns(["group"]), path)
    else:
        pq.write_table(table.replace_schema_metadata(), path)
    wanted: Any = {
        "device": ("device", text_labels),
        "rank": ("rank", integers_between(0, 5, "must be 0 to 5")),
        "rank as text": ("rank", text_labels),
        "made": ("made", flags),
    }
    read, found = read_impressions(path, LogOptions(features=[]), wanted)
    order = read.impression_id
    assert order is not None
    assert (np.diff(order) < 0).any()
    assert found["device"].tolist() == told["device"][order].tolist()
    assert found["rank"].tolist() == told["rank"][order].tolist()
    assert found["rank as text"].tolist() == [str(rank) for rank in told["rank"][order]]
    assert found["made"].tolist() == told["made"][order].tolist()


HEADER = "impression_id,query_id,doc_id,position,click,swap_rank,device,score,swapped\n"


def small(path: Path, *rows: str) -> Path:
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        (("1,1,a,1,1,1,p,0,0", "1,1,b,2,0,2,p,0,0"), (), ("row 3, column 'swap_rank'", "row 2", "(got 2)")),
        (
            ("1,1,a,1,1,3,p,0,0", "1,1,b,2,0,3,p,0,0"),
            (),
            ("row 2, column 'swap_rank'", "1 to 2", "(got '3')"),
        ),
        (("1,1,a,1,1,-1,p,0,0", "1,1,b,2,0,-1,p,0,0"), (), ("row 2, column 'swap_rank'", "(got '-1')")),
        (("1,1,a,1,1,x,p,0,0", "1,1,b,2,0,x,p,0,0"), (), ("row 2, column 'swap_rank'", "(got 'x')")),
        (("1,1,a,1,1,1,p,0,0", "1,1,b,2,0,,p,0,0"), (), ("row 3, column 'swap_rank'", "0 outside")),
        (("1,1,a,1,1,1,p,0,0", "1,1,b,2,0,1,p,0,7"), (), ("row 3, column 'swapped'", "(got 7)")),
        (
            ("1,1,a,1,1,1,p,0,0", "1,1,b,2,0,1,q,0,0"),
            ("--by", "device"),
            ("row 3, column 'device'", "the same in all rows of an impression", "row 2", "(got 'q')"),
        ),
        (
            ("1,1,a,1,1,1,p,0,0", "1,1,b,2,0,1,,0,0"),
            ("--by", "device"),
            ("row 3, column 'device'", "give what is not known a name"),
        ),
        (
            ("1,1,a,1,1,1,p,0,0", "1,1,b,2,0,1,p,1,0"),
            ("--ranker-column", "score", "--method", "harvest"),
            ("row 3, column 'score'", "(got '1')"),
        ),
    ],
)
def test_wrong_columns_are_named_with_row_and_value(
    rows: tuple[str, ...],
    options: tuple[str, ...],
    expected: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = small(tmp_path / "log.csv", *rows)
    line = refusal(capsys, "propensity", path, *options, "--out", tmp_path / "bias.json")
    assert line.startswith(f"fultr: {path}, ")
    for text in expected:
        assert text in line
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("file", "options", "expected"),
    [
        ("random_file", ("--swap-column", "swaprank"), "column 'swaprank': the column is missing"),
        ("random_file", ("--ranker-column", "docid"), "is 'doc_id' meant"),
        ("random_file", ("--by", "device"), "column 'device': the column is missing; there are"),
        ("random_file", ("--method", "swap"), "--swap-column; the log supports harvest and em (--method)"),
        ("random_file", ("--method", "guess"), "'guess' is not one of"),
        ("random_file", ("--swapped-column", "click"), "--swapped-column needs --swap-column"),
        ("random_file", ("--by", "position"), "column 'position': must be the same in all rows"),
        ("random_file", ("--by", "impression_id"), "has 8,000 values"),
        ("random_file", ("--by", "group"), "must be the same in all rows of an impression"),
        ("random_file", ("--level", "1.5"), "--level: must lie between 0 and 1 (got 1.5)"),
        ("random_file", ("--longest", "1"), "--longest"),
        ("random_file", ("--least-clicks", "100000"), "a larger log, or a smaller --least-clicks\n"),
        ("random_file", ("--least-clicks", "100000", "--by", "query_id"), "has 100 values"),
        ("random_file", ("--relevance", "items", "--method", "swap"), "--relevance is for --method em"),
        ("random_file", ("--out", "bias.txt"), "bias.txt: a position bias is a .json file"),
        ("random_file", ("--out", "nowhere/bias.json"), "its folder does not exist"),
        ("random_file", ("--plot", "bias.gif"), "a picture ends in one of"),
        ("random_file", ("--column", "device=x"), "--column takes NAME=COLUMN"),
        ("random_file", ("--tail", "cliff"), "'cliff' is not one of"),
        (
            "fixed_file",
            (),
            "supports no method: no column tells of exchanges (--swap-column), and no document",
        ),
        ("fixed_file", ("--compare",), "the log supports no method"),
        ("fixed_file", ("--method", "harvest"), "nothing can be harvested; vary the positions, or ask for"),
        ("fixed_file", ("--method", "em"), "or ask for --relevance features, whose assumptions then decide"),
        ("ranker_file", ("--method", "swap"), "the log supports harvest and em (--method)"),
        (
            "ranker_file",
            ("--ranker-column", "query_id", "--method", "harvest"),
            "the log supports em (--method)",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(
    file: str,
    options: tuple[str, ...],
    expected: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in refusal(capsys, "propensity", request.getfixturevalue(file), *options)
    assert list(tmp_path.iterdir()) == []


def test_a_regression_decides_where_nothing_varies_only_if_asked_for(
    fixed_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = result_of(capsys, "propensity", fixed_file, "--relevance", "features")
    assert code == 0
    assert "nothing in the log tests it" in out
    assert "model        not tested" in out
    bare = tmp_path / "bare.parquet"
    write_log(fixed_log(), bare, features="none")
    line = refusal(capsys, "propensity", bare, "--relevance", "features")
    assert "bare.parquet: has no features" in line
    items = fixed_file.with_name("clicks.items.parquet")
    json_of(capsys, "propensity", bare, "--relevance", "features", "--items", items)


def test_logs_that_tell_no_click_rates_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulate_clicks(lists_of(), RandomRanking(), BIAS, NOISE, impressions=500, keep_empty=False, seed=0)
    write_log(log, tmp_path / "log.parquet")
    for options in ((), ("--method", "em"), ("--method", "harvest"), ("--compare",)):
        line = refusal(capsys, "propensity", tmp_path / "log.parquet", *options)
        assert "log.parquet: impressions without a click were dropped" in line


def test_an_examination_that_rises_has_no_power_law_as_its_tail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    falling = simulate_clicks(lists_of(), RandomRanking(), BIAS, NOISE, impressions=4_000, seed=0)
    log = ClickLog(falling.data, falling.lists, 6 - falling.position, falling.click)
    path = written(log, tmp_path / "log.parquet", device=["any"] * len(log))
    arguments = ("propensity", path, "--randomised", "--tail", "power", "--out", tmp_path / "bias.json")
    assert "no power law can be its tail" in refusal(capsys, *arguments)
    line = refusal(capsys, *arguments, "--by", "device")
    assert "column 'device': no value of it has a curve" in line
    assert "(got 'any')" in line
    assert not list(tmp_path.glob("*.json"))


def test_nothing_is_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = two_devices(tmp_path / "clicks.parquet")
    before = tmp_path / "bias.json"
    before.write_text("{}")
    files = sorted(tmp_path.iterdir())

    def full(*_: Any, **__: Any) -> Path:
        raise WriteError("bias.png: cannot be written: No space left on device")

    monkeypatch.setattr("fultr.cli.propensity.draw_bias", full)
    arguments = ("propensity", path, "--by", "device", "--out", tmp_path / "bias.json")
    code, out, err = result_of(capsys, *arguments, "--plot", tmp_path / "bias.png")
    assert (code, out) == (1, "")
    assert "No space left" in err
    assert sorted(tmp_path.iterdir()) == files
    assert before.read_text() == "{}"


def test_reading_and_estimating_show_progress_on_a_terminal(
    random_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, _, err = result_of(capsys, "propensity", random_file)
    assert code == 0
    assert "reading" in err
    assert "estimating" in err


def test_the_seed_decides_the_intervals(random_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def low(seed: int) -> float:
        content = json_of(capsys, "propensity", random_file, "--seed", seed)
        return float(content["estimates"][0]["positions"][1]["low"])

    assert low(1) == low(1)
    assert low(1) != low(2)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_pictures_take_any_names_gaps_and_curves_without_intervals(
    tmp_path: Path, ending: str, made: Callable[..., BiasEstimate]
) -> None:
    panels = {
        "$x_{ [": {"a$": made(1.0, 0.5, np.nan, 0.2), "b": made(1.0, 0.4)},
        "two": {"b": made(1.0, 0.9)},
    }
    path = draw_bias(panels, tmp_path / f"bias.{ending}", {"two": {2}})
    assert path.stat().st_size > 1000
    again = draw_bias(panels, tmp_path / f"again.{ending}", {"two": {2}})
    assert again.read_bytes() == path.read_bytes()


@pytest.fixture
def made() -> Callable[..., BiasEstimate]:
    def estimate(*values: float) -> BiasEstimate:
        content = {
            "method": "em",
            "context": None,
            "shape": "free",
            "level": 0.95,
            "positions": [
                {
                    "value": None if np.isnan(value) else value,
                    "low": None,
                    "high": None,
                    "raw": None if np.isnan(value) else value,
                    "standard_error": None,
                    "impressions": 1,
                    "clicks": 1,
                    "pairs": 1,
                }
                for value in values
            ],
            "insufficient": [place for place, value in enumerate(values, start=1) if np.isnan(value)],
            "eta": {"value": 1.0, "low": None, "high": None},
            "fit": None,
            "power_fit": None,
            "queries": 1,
            "resamples": 0,
            "deepest": len(values),
            "notes": [],
        }
        return BiasEstimate.from_dict(content)

    return estimate


def test_one_query_has_a_curve_without_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = simulate_clicks(lists_of(1), RandomRanking(), BIAS, ClickNoise(0.9, 0.5), impressions=2_000, seed=0)
    path = written(log, tmp_path / "one.parquet")
    content = json_of(capsys, "propensity", path, "--compare", "--randomised")
    cell = content["estimates"][0]["comparison"]["table"][1]["harvest"]
    assert cell["low"] is None
    assert cell["value"] == pytest.approx(0.6, abs=0.1)
    code, out, _ = result_of(
        capsys, "propensity", path, "--compare", "--randomised", "--plot", tmp_path / "x.png"
    )
    assert code == 0
    assert "one query only" in out
    assert "nan" not in out
    json.loads(json.dumps(content, allow_nan=False))


@pytest.mark.slow
def test_the_file_of_default_options_serves_the_log_it_came_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, bias = tmp_path / "jobs.parquet", tmp_path / "bias.json"
    week_of_jobs(1).write_parquet(log)
    found = json_of(capsys, "propensity", log, "--out", bias)["estimates"][0]
    lacking = found["insufficient"]
    assert len(lacking) > 5
    assert lacking[-1] == found["deepest"] == 20
    assert found["beyond"] > 0
    run = ("--lambda", 1, "--l2", 0.1, "--out", tmp_path / "run")
    code, _, err = result_of(capsys, "train", log, "--bias", bias, *run)
    assert code == 0, err
    imprecise = [line for line in err.splitlines() if "is imprecise" in line]
    assert len(imprecise) == 1
    assert " to 20 (0 to " in imprecise[0]
    assert " clicks at each), and the log goes down to 20" in imprecise[0]
    for arguments in (("evaluate", tmp_path / "run", log), ("audit", log)):
        code, _, err = result_of(capsys, *arguments, "--bias", bias)
        assert code == 0, err
    _, printed, _ = result_of(capsys, "propensity", log)
    assert f"Not enough data at positions {lacking[0]} to 20: " in printed
    assert "after position" in printed
    # the curve ends only if that is asked for, and then it is said once why the log cannot be weighed
    assert (
        json_of(capsys, "propensity", log, "--tail", "error", "--out", bias)["estimates"][0]["beyond"]
        == "error"
    )
    run = ("--lambda", 1, "--l2", 0.1, "--out", tmp_path / "other")
    code, _, err = result_of(capsys, "train", log, "--bias", bias, *run)
    assert code == 2
    assert err.count("position 20 lies beyond the position bias") == 1
    assert err.splitlines()[-1].startswith(f"fultr: {log}, column 'position': position 20 lies beyond")
    assert not (tmp_path / "other").exists()


def test_a_curve_of_all_positions_needs_no_tail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_board(searches=300).write_parquet(tmp_path / "jobs.parquet")
    found = json_of(capsys, "propensity", tmp_path / "jobs.parquet")["estimates"][0]
    assert not found["insufficient"]
    assert found["beyond"] == "error"
    assert len(found["values"]) == 15
