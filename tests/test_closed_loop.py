"""Serve, count, audit, retrain, serve: the events of a policy at work are the next log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fultr
from tests.commands import json_of

pytest.importorskip("starlette")

from fultr.serving import load_policy
from fultr.serving.settings import ServiceSettings
from tests.asgi import Client, Clock, with_service
from tests.served_policies import linear_policy

ETA, VISITS = 0.8, 6_000
FEATURES = [f"f{number}" for number in range(5)]


class World:
    """Queries with candidates, and users who look at position k with probability 1 / k^eta."""

    def __init__(self, queries: int = 12, items: int = 8) -> None:
        self.rng = np.random.default_rng(0)
        self.features = self.rng.normal(size=(queries, items, len(FEATURES)))
        self.features[:, :, -1] = np.arange(items) % 2  # which group
        taste = np.array([1.5, -1.0, 0.5, 0.0, 0.7])
        self.relevance = 1 / (1 + np.exp(-(self.features @ taste - 1)))

    def request(self, query: int) -> dict[str, Any]:
        candidates = [
            {"id": f"{query}-{item}", "group": "ab"[item % 2], "features": row.tolist()}
            for item, row in enumerate(self.features[query])
        ]
        return {"query_id": f"query {query}", "candidates": candidates, "top_k": 6}

    def clicked(self, query: int, ids: list[str]) -> list[str]:
        items = [int(one.split("-")[1]) for one in ids]
        looked = self.rng.random(len(ids)) < np.arange(1, len(ids) + 1.0) ** -ETA
        liked = self.rng.random(len(ids)) < self.relevance[query, items]
        return [one for one, click in zip(ids, looked & liked, strict=True) if click]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the events of a first policy, which is nearly random, at work."""
    folder = tmp_path_factory.mktemp("loop")
    first = linear_policy(folder / "policy", [0.3, 0.0, 0.0, 0.2, 0.0], FEATURES, groups=["a", "b"])
    serve(ServiceSettings(policies=[first], events=folder / "events"), World(), VISITS)
    return folder / "events"


def serve(settings: ServiceSettings, world: World, visits: int) -> None:
    clock = Clock()

    async def work(client: Client) -> None:
        for visit in range(visits):
            clock.now += 5_000_000
            query = visit % len(world.features)
            shown = await client.rank({**world.request(query), "session": f"s{visit}"})
            clicked = world.clicked(query, shown["ids"])
            if clicked:
                await client.click({"ranking_id": shown["ranking_id"], "ids": clicked})

    with_service(settings, work, clock)


@pytest.mark.slow
@pytest.mark.statistical
def test_drawn_rankings_are_interventions_that_show_the_position_bias(
    events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bias.json"
    content = json_of(
        capsys, "propensity", events, "--method", "harvest", "--randomised", "--shape", "free", "--out", out
    )
    assert content
    estimate = fultr.read_bias(out)
    truth = np.arange(1, 7.0) ** -ETA
    error = np.array(estimate.standard_error[:6])
    assert (error[1:] > 0).all()
    assert (error < 0.06).all()
    assert (np.abs(np.array(estimate.values[:6]) - truth) <= 4 * error + 1e-12).all()


@pytest.mark.slow
def test_events_are_counted_audited_and_trained_on_and_the_new_policy_is_served(
    events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = tmp_path / "counts.parquet"
    summary = json_of(capsys, "count", events, "--out", counts)
    assert summary["impressions"] == VISITS
    audit = json_of(capsys, "audit", counts, "--eta", ETA, "--depth", 6)
    assert audit
    run = tmp_path / "run"
    json_of(capsys, "train", counts, "--eta", ETA, "--lambda", 0, "--l2", 0.001, "--out", run)
    policy = load_policy(run / "policy.safetensors")
    assert list(policy.feature_names) == FEATURES
    world = World()
    serve(ServiceSettings(policies=[run / "policy.safetensors"], events=tmp_path / "events"), world, 400)
    before, after = (fultr.read_log(folder) for folder in (events, tmp_path / "events"))
    # people click more than before
    rates = [log.click.sum() / len(log) for log in (before, after)]
    assert rates[1] > rates[0] * 1.1
    json.dumps(audit)
