"""Trust bias from swaps: what they tell, that estimates are unbiased, and that intervals cover."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from fultr import ClickLog, ClickNoise, InputError, PositionBias, RankingDataset, simulate_clicks
from fultr.cli.main import run
from fultr.clicks import Planting, TrustEstimate, estimate_bias_swap, estimate_noise_swap
from fultr.estimators import evidence_from_clicks
from fultr.logs import write_log
from fultr.policy import FixedScorer
from tests.test_bias_estimation import Swaps

V = np.array([1.0, 0.6, 0.4, 0.3, 0.2])
EPS_MINUS = np.array([0.4, 0.25, 0.1, 0.05, 0.0])
ALPHA, BETA = V * (1 - EPS_MINUS), V * EPS_MINUS
QUERIES = 100


def lists_of(length: int = 5) -> RankingDataset:
    """Return lists whose items are the more relevant, the higher the ranker puts them."""
    rng = np.random.default_rng(0)
    relevance = np.tile(np.linspace(0.8, 0.1, length), QUERIES) + rng.uniform(-0.1, 0.1, length * QUERIES)
    features = np.tile(np.arange(length, 0, -1.0), QUERIES)[:, None].astype(np.float32)
    return RankingDataset(
        features,
        np.arange(0, length * QUERIES + 1, length),
        relevance=relevance,
        query_id=np.arange(QUERIES),
        doc_id=np.arange(length * QUERIES),
        feature_names=("score",),
    )


def swap_log(
    seed: int, impressions: int = 20_000, *, planted: bool = False, length: int = 5
) -> tuple[ClickLog, NDArray[np.int64]]:
    """Return a log of exchanges and what was drawn; impressions with a planted item are no part of them."""
    policy = Swaps(FixedScorer(lambda features: features[:, 0]))
    noise = ClickNoise(1.0, EPS_MINUS.tolist())
    planting = Planting(share=0.2) if planted else None
    log = simulate_clicks(
        lists_of(length),
        policy,
        PositionBias(V.tolist()),
        noise,
        impressions=impressions,
        seed=seed,
        planting=planting,
    )
    drawn = policy.drawn(log)
    drawn[log.planted.impression] = 0
    return log, drawn


def values_of(found: TrustEstimate, name: str) -> NDArray[np.float64]:
    return np.array([getattr(one, name).value for one in found.positions.values()])


def covered(found: TrustEstimate, name: str, truth: NDArray[np.float64]) -> NDArray[np.bool_]:
    ends = [getattr(one, name) for one in found.positions.values()]
    return np.array([one.low <= value <= one.high for one, value in zip(ends, truth, strict=True)])


@pytest.mark.parametrize("planted", [False, True])
def test_examination_and_noise_are_unbiased_and_their_intervals_cover(planted: bool) -> None:
    """Without planted items the last position decides, at which nobody clicks by mistake here."""
    length, logs = (4, 50) if planted else (5, 50)
    truths = {
        "slope": (ALPHA / ALPHA[0])[:length],
        "intercept": (BETA - ALPHA / ALPHA[0] * BETA[0])[:length],
        "examination": V[:length],
        "eps_minus": EPS_MINUS[:length],
    }
    found = []
    for seed in range(logs):
        log, drawn = swap_log(seed, planted=planted, length=length)
        found.append(estimate_noise_swap(log, drawn, resamples=200, seed=seed))
        assert list(found[-1].positions) == [1, 2, 3, 4, 5][:length]
        assert found[-1].anchor == ("planted items" if planted else "no mistakes at position 5")
    for name, truth in truths.items():
        values = np.array([values_of(one, name) for one in found])
        error = values.std(axis=0, ddof=1) / np.sqrt(logs)
        # what is cut at 0 or 1 does not vary, and a ratio is off by a little of its own error
        assert (np.abs(values.mean(axis=0) - truth) <= 4 * error + 0.002).all(), name
        share = np.mean([covered(one, name, truth) for one in found], axis=0)
        assert (share >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / logs)).all(), (name, share)


def test_the_bounds_by_swaps_alone_hold_the_noise_of_the_first_position() -> None:
    log, drawn = swap_log(1, 100_000, planted=True, length=4)
    found = estimate_noise_swap(log, drawn)
    assert found.least < BETA[0] < found.most
    # beta_1 less what is left if no mistakes are made at the position with the fewest
    assert found.least == pytest.approx(BETA[0] - (BETA / ALPHA * ALPHA[0])[:4].min(), abs=0.02)


def test_merit_is_unbiased_with_both_and_biased_with_examination_alone() -> None:
    log, drawn = swap_log(2, 150_000)
    counts, relevance = log.compact(), lists_of().relevance
    assert relevance is not None
    found = estimate_noise_swap(log, drawn)
    by_position = relevance.reshape(QUERIES, 5).mean(axis=0)

    def merit(bias: PositionBias, noise: ClickNoise) -> Any:
        evidence = evidence_from_clicks(counts, bias, noise=noise)
        order = np.argsort(np.asarray(counts.data.doc_id))
        of_item = (evidence.weight / evidence.total_impressions).numpy()[order]
        return of_item.reshape(QUERIES, 5).sum(axis=0)

    np.testing.assert_allclose(
        merit(found.to_position_bias(), found.to_click_noise()), by_position, atol=0.05
    )
    plain = estimate_bias_swap(log, drawn)
    assert (merit(plain.to_position_bias(), ClickNoise()) - by_position > 0.1).all()


def test_without_trust_bias_there_is_none_to_be_found() -> None:
    policy = Swaps(FixedScorer(lambda features: features[:, 0]))
    log = simulate_clicks(lists_of(), policy, PositionBias(V.tolist()), impressions=100_000, seed=0)
    found = estimate_noise_swap(log, policy.drawn(log))
    np.testing.assert_allclose(values_of(found, "examination"), V, atol=0.02)
    assert values_of(found, "eps_minus").max() < 0.06
    for one in found.positions.values():
        assert one.intercept.low <= 0 <= one.intercept.high


def test_items_alike_tell_nothing_and_are_refused() -> None:
    data = lists_of()
    alike = RankingDataset(
        data.features, data.offsets, relevance=np.full(data.rows, 0.4), query_id=data.query_id
    )
    policy = Swaps(FixedScorer(lambda features: features[:, 0]))
    log = simulate_clicks(alike, policy, PositionBias(V.tolist()), impressions=5_000, seed=0)
    with pytest.raises(InputError, match="clicked about alike at position 1"):
        estimate_noise_swap(log, policy.drawn(log))
    with pytest.raises(InputError, match="eps_plus"):
        estimate_noise_swap(log, policy.drawn(log), eps_plus=0.0)
    with pytest.raises(InputError, match="resamples"):
        estimate_noise_swap(log, policy.drawn(log), resamples=1)


def test_the_command_writes_what_belongs_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, drawn = swap_log(3)
    file, bias = tmp_path / "clicks.parquet", tmp_path / "bias.json"
    write_log(log, file)
    rows = pl.read_parquet(file)
    place = rows["impression_id"].rle_id().to_numpy()
    rows.with_columns(swap_rank=drawn[place]).write_parquet(file)
    expected = estimate_noise_swap(log, drawn)
    arguments = ["noise", str(file), "--swap-column", "swap_rank", "--out", str(bias)]
    assert run([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    values = [row["eps_minus"]["value"] for row in content["positions"]]
    assert values == pytest.approx(values_of(expected, "eps_minus").tolist(), abs=1e-9)
    assert json.loads(bias.read_text())["values"] == pytest.approx(expected.to_position_bias().values)
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert "no mistakes at position 5" in printed
    assert "--eps-minus" in printed
    assert run(["noise", str(file), "--swap-column", "swap_rank", "--eta", "1"]) == 2
    assert run(["noise", str(file), "--out", str(bias)]) == 2
    assert run(["noise", str(file), "--swap-column", "nothing"]) == 2
