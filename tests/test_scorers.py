from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fultr import DataSplits, InputError, RankingDataset, read_dataset, write_dataset
from fultr.policy import GroupBlind, LinearScorer, MLPScorer, TorchPolicy

WIDTH = 5
SCORERS: dict[str, Callable[[int | torch.Generator], nn.Module]] = {
    "linear": lambda seed: LinearScorer(WIDTH, spread=0.5, seed=seed),
    "mlp": lambda seed: MLPScorer(WIDTH, seed=seed),
    "deep": lambda seed: MLPScorer(WIDTH, hidden=(7, 3, 2), seed=seed),
    "blind": lambda seed: GroupBlind(MLPScorer(WIDTH, (4,), seed=seed), (1, 3)),
}
every_scorer = pytest.mark.parametrize("name", SCORERS)


def features(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(seed))


def data_of(table: Any, offsets: Any = None) -> RankingDataset:
    values = np.asarray(table, dtype=np.float32)
    return RankingDataset(values, [0, len(values)] if offsets is None else offsets)


class Table(nn.Module):
    """Return whatever it was given, for as many rows as are asked for."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, block: Tensor) -> Any:
        return self.answer(block)


@every_scorer
def test_scorers_give_one_score_for_each_item(name: str) -> None:
    scorer, table = SCORERS[name](0), features(2, 3, 4)
    scores = scorer(table)
    assert scores.shape == (2, 3, 4)
    torch.testing.assert_close(scores[1, 2, 3], scorer(table[1, 2, 3]))
    assert scorer(features(0)).shape == (0,)
    assert scorer.double()(table.double()).dtype == torch.float64


@every_scorer
def test_seeds_reproduce_and_differ(name: str) -> None:
    one, same, other = (SCORERS[name](seed)(features(9)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(SCORERS[name](generator)(features(9)), one)
    assert not torch.equal(SCORERS[name](generator)(features(9)), one)


@every_scorer
def test_torch_s_global_random_state_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    data = data_of(features(10))
    TorchPolicy(SCORERS[name](0)).sample_rankings(data, n=3)
    assert torch.equal(torch.get_rng_state(), before)


@every_scorer
def test_all_parameters_learn(name: str) -> None:
    scorer, table = SCORERS[name](0), features(50)
    scorer(table).log_softmax(-1)[0].backward()
    assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in scorer.parameters())


@every_scorer
def test_many_configurations_can_be_scored_at_once(name: str) -> None:
    scorers, table = [SCORERS[name](seed) for seed in range(3)], features(6)
    parameters, buffers = torch.func.stack_module_state(scorers)
    base = copy.deepcopy(scorers[0]).to("meta")

    def scores_of(own: dict[str, Any], buffered: dict[str, Any]) -> Any:
        return torch.func.functional_call(base, (own, buffered), (table,))

    together = torch.func.vmap(scores_of)(parameters, buffers)
    torch.testing.assert_close(together, torch.stack([scorer(table) for scorer in scorers]))


def test_a_linear_scorer_is_a_weighted_sum_that_starts_at_zero() -> None:
    scorer = LinearScorer(WIDTH)
    assert (scorer(features(4)) == 0).all()
    with torch.no_grad():
        scorer.weight.copy_(torch.arange(5.0))
    table = features(4)
    torch.testing.assert_close(scorer(table), (table * torch.arange(5.0)).sum(-1))
    assert repr(scorer) == "LinearScorer(5)"


def test_an_mlp_is_layers_with_relu_between_them() -> None:
    scorer, value = MLPScorer(WIDTH, hidden=(7, 3)), features(4)
    first, second, last = (layer for layer in scorer.layers if isinstance(layer, nn.Linear))
    assert sum(weight.numel() for weight in last.parameters()) == 3  # and so no bias
    value = (value @ first.weight.T + first.bias).clamp(min=0)
    value = (value @ second.weight.T + second.bias).clamp(min=0)
    torch.testing.assert_close(scorer(features(4)), (value @ last.weight.T)[:, 0])
    assert all(weight.abs().max() <= 1 / np.sqrt(3) for weight in scorer.parameters())


@given(
    st.sets(st.integers(0, WIDTH - 1)),
    st.lists(st.floats(-1e6, 1e6, width=32) | st.just(float("nan")), min_size=WIDTH, max_size=WIDTH),
)
def test_a_group_blind_scorer_does_not_see_hidden_columns(columns: set[int], other: list[float]) -> None:
    scorer = GroupBlind(MLPScorer(WIDTH, (8,)), sorted(columns))
    hidden = torch.tensor([column in columns for column in range(WIDTH)])
    table = features(6).requires_grad_()
    scores = scorer(table)
    assert torch.equal(scores, scorer(torch.where(hidden, torch.tensor(other), table)))
    scores.sum().backward()
    assert table.grad is not None
    assert (table.grad[:, hidden] == 0).all()
    assert hidden.all() or (table.grad[:, ~hidden] != 0).any()


def test_a_group_blind_scorer_leaves_its_input_alone() -> None:
    table = features(6)
    before = table.clone()
    scorer = GroupBlind(LinearScorer(WIDTH), [2, 0, 2])
    scorer(table)
    assert torch.equal(table, before)
    assert "columns=(0, 2)" in repr(scorer)


def test_a_group_blind_policy_on_real_columns(german: DataSplits) -> None:
    data = german.train
    assert data.group_columns
    width = data.features.shape[1]
    policy = TorchPolicy(GroupBlind(LinearScorer(width, spread=1.0), data.group_columns))
    shuffled = data.features.copy()
    shuffled[:, list(data.group_columns)] = 7
    assert (policy.predict(data) == policy.predict(RankingDataset(shuffled, data.offsets))).all()
    assert repr(policy) == "TorchPolicy(GroupBlind, stochastic=True)"


@every_scorer
@pytest.mark.parametrize("block", [1, 3, 10, 100])
def test_blocks_of_rows_give_what_one_pass_gives(name: str, block: int) -> None:
    scorer, table = SCORERS[name](0), features(10)
    scores = TorchPolicy(scorer, rows_a_block=block).predict(data_of(table))
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, scorer(table).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_blocks_bound_what_a_module_sees() -> None:
    sizes: list[int] = []

    def answer(block: Tensor) -> Tensor:
        sizes.append(len(block))
        return block[:, 0]

    TorchPolicy(Table(answer), rows_a_block=4).predict(data_of(features(10)))
    assert sizes == [4, 4, 2]


def test_a_column_of_scores_is_as_good_as_a_row_of_them() -> None:
    layer = nn.Sequential(nn.Linear(WIDTH, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))
    data = data_of(features(10))
    scores = TorchPolicy(layer).predict(data)
    assert scores.shape == (10,)
    np.testing.assert_allclose(TorchPolicy(layer.double()).predict(data), scores, atol=1e-5)


def test_every_part_of_a_module_gets_its_mode_back() -> None:
    table = Table(lambda block: block)
    module = nn.Sequential(nn.Linear(WIDTH, 4), nn.Dropout(), nn.Linear(4, 1), table)
    module[1].eval()
    modes = [part.training for part in module.modules()]
    seen: list[bool] = []

    def answer(block: Tensor) -> Tensor:
        seen.extend(part.training for part in module.modules())
        seen.append(torch.is_grad_enabled())
        return block

    table.answer = answer
    TorchPolicy(module).predict(data_of(features(3)))
    assert seen
    assert not any(seen)
    assert [part.training for part in module.modules()] == modes
    table.answer = lambda block: block.reshape(1, -1)
    with pytest.raises(InputError):
        TorchPolicy(module).predict(data_of(features(3)))
    assert [part.training for part in module.modules()] == modes


def test_a_policy_draws_rankings_or_ranks_by_score() -> None:
    data = data_of(features(6), [0, 4, 6])
    drawing, fixed = (
        TorchPolicy(LinearScorer(WIDTH, spread=1.0), stochastic) for stochastic in (True, False)
    )
    assert len({tuple(ranking) for ranking in drawing.sample_rankings(data, n=200, seed=0).tolist()}) > 5
    assert (fixed.sample_rankings(data, n=50) == fixed.rank(data)).all()
    assert sorted(drawing.sample_rankings(data, top_k=1)[0].tolist()) == [0, 0, 0, 0, 1, 1]


def test_memory_mapped_features_are_scored_and_not_changed(tmp_path: Path) -> None:
    data = data_of(features(6), [0, 4, 6])
    write_dataset(data, tmp_path / "data.arrow")
    stored = read_dataset(tmp_path / "data.arrow")
    assert not stored.features.flags.writeable
    policy = TorchPolicy(Table(lambda block: block.mul_(2)[:, 0]))
    np.testing.assert_array_equal(policy.predict(stored), 2 * data.features[:, 0].astype(np.float64))
    assert (policy.predict(data) == policy.predict(stored)).all()


def test_modules_of_another_width_are_named() -> None:
    data = data_of([[1.0, 2.0]])
    for scorer in (LinearScorer(WIDTH), MLPScorer(WIDTH), GroupBlind(LinearScorer(WIDTH), [0])):
        with pytest.raises(InputError, match="column 'features': the scorer takes 5 features .got 2"):
            TorchPolicy(scorer).predict(data)
    with pytest.raises(InputError, match="column 3 is to be hidden"):
        TorchPolicy(GroupBlind(LinearScorer(2), [3])).predict(data)
    with pytest.raises(InputError, match="column 'features'.*cannot score rows of 2 features"):
        TorchPolicy(nn.Linear(3, 1)).predict(data)


def test_running_out_of_memory_is_not_the_fault_of_the_input() -> None:
    def answer(_block: Tensor) -> Tensor:
        raise torch.cuda.OutOfMemoryError

    with pytest.raises(torch.cuda.OutOfMemoryError):
        TorchPolicy(Table(answer)).predict(data_of(features(5)))


def test_wrong_answers_of_a_module_are_named() -> None:
    data = data_of(features(5))
    for answer in (
        lambda x: x,
        lambda x: x[:3, 0],
        lambda x: x[:, :1, None],
        lambda x: x.sum(),
        lambda _: 1.0,
    ):
        with pytest.raises(InputError, match="column 'module': .*one score for each of 5 rows"):
            TorchPolicy(Table(answer)).predict(data)
    for bad in (float("nan"), float("inf")):
        row = data.features[3, 0].item()
        policy = TorchPolicy(
            Table(lambda x, b=bad, r=row: torch.where(x[:, 0] == r, b, x[:, 0])), rows_a_block=2
        )
        with pytest.raises(InputError, match="row 4, column 'score'"):
            policy.predict(data)


@pytest.mark.parametrize(
    ("make", "column"),
    [
        (lambda: LinearScorer(0), "features"),
        (lambda: LinearScorer(1, spread=-1.0), "spread"),
        (lambda: LinearScorer(1, spread=float("nan")), "spread"),
        (lambda: MLPScorer(0), "features"),
        (lambda: MLPScorer(1, hidden=()), "hidden"),
        (lambda: MLPScorer(1, hidden=(3, 0)), "hidden"),
        (lambda: GroupBlind(LinearScorer(1), [-1]), "columns"),
        (lambda: TorchPolicy(LinearScorer(1), rows_a_block=0), "rows_a_block"),
    ],
)
def test_impossible_settings_are_named(make: Any, column: str) -> None:
    with pytest.raises(InputError, match=f"column '{column}'"):
        make()
