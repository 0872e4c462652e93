"""FairRanker in all its forms keeps the contract of rankers."""

from __future__ import annotations

from typing import Any

import pytest

from fultr import FairRanker, TreeSettings
from fultr.training import fair_ranker
from fultr.training.paper_steps import PaperSettings
from tests.ranker_contract import Candidate, Contract
from tests.training_tasks import BIAS


def made(**settings: Any) -> Any:
    """Return a function that makes a ranker with these settings and those of a test."""
    known = {"l2": 0.01, "position_bias": BIAS, **settings}
    return lambda **more: FairRanker(**{**known, **more})


SMALL = TreeSettings(rounds=10, min_rows=5, leaves=4)
CANDIDATES = {
    "linear": Candidate(made(fairness_weight=1.0, l2=[0.001, 0.1])),
    "mlp": Candidate(made(fairness_weight=1.0, model="mlp")),
    "trees": Candidate(made(fairness_weight=1.0, model="trees", l2=None, trees=SMALL)),
    "linear+trees": Candidate(made(fairness_weight=1.0, model="linear+trees", trees=SMALL)),
    "limited trees": Candidate(
        made(max_disparity=0.05, model="linear+trees", l2=[0.01, 0.1], trees=SMALL, group_blind=True),
        needs_groups=True,
    ),
    "max_disparity": Candidate(made(max_disparity=0.05), needs_groups=True),
    "min_utility": Candidate(made(min_utility=0.95), needs_groups=True),
    "confidence": Candidate(made(max_disparity=100.0, confidence=0.9), needs_groups=True),
    "offsets": Candidate(made(max_disparity=1.0, fairness="offsets"), needs_groups=True),
    "full information": Candidate(made(fairness_weight=1.0), labelled=True),
    "group-blind": Candidate(made(fairness_weight=1.0, group_blind=True)),
    "no ips": Candidate(made(fairness_weight=1.0, utility_ips=False, disparity_ips=False)),
    "utility ips": Candidate(made(fairness_weight=1.0, disparity_ips=False)),
    "paper": Candidate(made(fairness_weight=1.0, protocol="paper"), per_impression=True),
}


@pytest.fixture(params=CANDIDATES)
def candidate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Candidate:
    few_steps = PaperSettings(validate_every=150, patience=1, most_steps=450)
    monkeypatch.setattr(fair_ranker, "PAPER", few_steps)
    return CANDIDATES[request.param]


class TestFairRanker(Contract):
    """All tests of the contract."""
