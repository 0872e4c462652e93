"""What every ranker must do, whatever it learns: one suite for all of them.

A ranker is made by a function of settings, is trained by `fit(source)`, and then scores and ranks lists. A
test module derives a class of `Contract`, and has a fixture `candidate` that goes through the rankers.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

import fultr
from fultr import ClickLog, InputError, RankingDataset
from tests.training_tasks import BIAS, random_log

WIDTH = 4


@dataclass(frozen=True)
class Candidate:
    """A ranker to check: how it is made, and what it learns from.

    That is clicks or labelled lists; and of clicks, single impressions alone or counts as well. What limits
    the disparity needs two groups.
    """

    make: Callable[..., Any]
    labelled: bool = False
    per_impression: bool = False
    needs_groups: bool = False

    def source(self, data: RankingDataset) -> RankingDataset | ClickLog:
        """Return what the ranker learns from: labelled lists, or clicks on them."""
        return data if self.labelled else clicks_on(data)

    def train(self, data: RankingDataset, **settings: Any) -> Any:
        """Train a new ranker on lists, or on clicks on them."""
        return self.make(**settings).fit(self.source(data))

    @cache  # noqa: B019 - a module has a dozen candidates, which stay until it is done
    def trained(self) -> Any:
        """Return a ranker trained on `lists()`: one for all tests that do not train it again."""
        return self.train(lists())


def lists(*, seed: int = 0, count: int = 24, groups: int = 2) -> RankingDataset:
    """Lists of 2 to 6 items, whose relevance follows the first feature."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 7, size=count)
    rows = int(lengths.sum())
    features = rng.normal(size=(rows, WIDTH))
    return RankingDataset(
        features,
        np.cumsum([0, *lengths]),
        group=rng.integers(groups, size=rows),
        group_names=[f"group {code}" for code in range(groups)],
        relevance=1 / (1 + np.exp(-2 * features[:, 0])),
        query_id=np.arange(count) + 1000 * seed,
        doc_id=np.arange(rows),
        group_columns=[WIDTH - 1],
    )


def clicks_on(data: RankingDataset, seed: int = 0) -> ClickLog:
    return random_log(data, impressions=400, seed=seed)


def rows_of_list(data: RankingDataset, which: int) -> NDArray[np.int64]:
    return np.arange(data.offsets[which], data.offsets[which + 1])


def by_row(rankings: Any) -> Any:
    """Return rankings as rows x rankings, which they are in frames and tables."""
    if hasattr(rankings, "column_names"):
        return rankings.to_pandas()
    return rankings.T if isinstance(rankings, np.ndarray) else rankings


def frozen(data: RankingDataset) -> RankingDataset:
    """Return the same lists in arrays that cannot be written to."""
    for name in ("features", "offsets", "group", "relevance", "query_id", "doc_id"):
        values = getattr(data, name)
        if values is not None:
            values.flags.writeable = False
    return data


def frame_of(data: RankingDataset) -> polars.DataFrame:
    """Return labelled lists as a frame, with names of columns as `fit` has them, and some columns besides."""
    assert data.query_id is not None
    return polars.DataFrame(
        {
            "qid": data.query_id[data.list_of_row],
            "doc_id": data.doc_id,
            "title": [f"item {row}" for row in range(data.rows)],
            "sensitive_features": np.array(data.group_names)[data.group],
            "label": data.relevance,
            "row": np.arange(data.rows),
            **{f"feature_{name}": data.features[:, at] for at, name in enumerate(data.feature_names)},
        }
    )


def contents(source: RankingDataset | ClickLog) -> list[bytes]:
    """Return all numbers of lists, and of clicks on them."""
    data = source if isinstance(source, RankingDataset) else source.data
    arrays: list[Any] = [data.features, data.offsets, data.group, data.relevance]
    arrays += [] if isinstance(source, RankingDataset) else [source.lists, source.position, source.click]
    return [array.tobytes() for array in arrays if array is not None]


class Contract:
    """The tests; `candidate` is parametrised by the module that uses them."""

    def test_fitting_twice_is_fitting_once(self, candidate: Candidate) -> None:
        source, test = candidate.source(lists()), lists(seed=9)
        once, twice = candidate.trained(), candidate.make()
        twice.fit(candidate.source(lists(seed=5)))
        twice.fit(source)
        np.testing.assert_array_equal(once.predict(test), twice.predict(test))

    def test_a_saved_ranker_is_the_same_when_it_is_loaded(self, candidate: Candidate, tmp_path: Path) -> None:
        ranker, test = candidate.trained(), lists(seed=9)
        path = fultr.save(ranker, tmp_path / "policy")
        own = getattr(ranker, "model", None)
        loaded = fultr.load(path, deepcopy(own) if isinstance(own, torch.nn.Module) else None)
        assert type(loaded) is type(ranker)
        np.testing.assert_array_equal(loaded.predict(test), ranker.predict(test))
        for one, other in zip(
            (ranker.sample_rankings(test, n=3, seed=1), ranker.rank(test)),
            (loaded.sample_rankings(test, n=3, seed=1), loaded.rank(test)),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)
        assert fultr.save(loaded, tmp_path / "again").read_bytes() == path.read_bytes()
        with pytest.raises(NotFittedError):
            fultr.save(candidate.make(), tmp_path / "untrained")

    def test_the_same_seed_gives_the_same_policy(self, candidate: Candidate) -> None:
        data, test = lists(), lists(seed=9)
        state = torch.random.get_rng_state()
        one, other = candidate.train(data, seed=3), candidate.train(data, seed=3)
        np.testing.assert_array_equal(one.predict(test), other.predict(test))
        np.testing.assert_array_equal(
            one.sample_rankings(test, 5, seed=1), other.sample_rankings(test, 5, seed=1)
        )
        assert torch.equal(torch.random.get_rng_state(), state)

    def test_it_learns(self, candidate: Candidate) -> None:
        ranker, test = candidate.trained(), lists(seed=9)
        assert test.relevance is not None
        found = np.corrcoef(ranker.predict(test), test.relevance)[0, 1]
        assert found > 0.3

    def test_scores_depend_on_nothing_but_the_row(self, candidate: Candidate) -> None:
        ranker, test = candidate.trained(), lists(seed=9)
        scores, ranks = ranker.predict(test), ranker.rank(test)
        assert scores.shape == ranks.shape == (test.rows,)
        assert scores.dtype == np.float64
        backwards = test[::-1]
        rows = np.concatenate([rows_of_list(test, which) for which in range(len(test))[::-1]])
        np.testing.assert_allclose(ranker.predict(backwards), scores[rows], atol=1e-6)
        np.testing.assert_array_equal(ranker.rank(backwards), ranks[rows])
        some = test[[3, 0]]
        rows = np.concatenate([rows_of_list(test, which) for which in (3, 0)])
        np.testing.assert_allclose(ranker.predict(some), scores[rows], atol=1e-6)
        np.testing.assert_array_equal(ranker.rank(some), ranks[rows])

    def test_the_order_of_items_says_nothing(self, candidate: Candidate) -> None:
        ranker, test = candidate.trained(), lists(seed=9)
        rng = np.random.default_rng(0)
        order = np.concatenate([rng.permutation(rows_of_list(test, which)) for which in range(len(test))])
        assert test.relevance is not None
        assert test.doc_id is not None
        mixed = replace(
            test,
            features=test.features[order],
            group=test.group[order],
            relevance=test.relevance[order],
            doc_id=test.doc_id[order],
        )
        scores = ranker.predict(test)
        np.testing.assert_allclose(ranker.predict(mixed), scores[order], atol=1e-6)
        # items of one list whose scores are the same up to rounding may change places, and no others
        near = np.abs(scores[:, None] - scores) < 1e-6
        alone = (near & (test.list_of_row[:, None] == test.list_of_row)).sum(axis=1) == 1
        assert alone.mean() > 0.3  # trees give many items of a list the same score
        ranks = ranker.rank(test)
        np.testing.assert_array_equal(ranker.rank(mixed)[alone[order]], ranks[order][alone[order]])

    def test_ranks_follow_the_scores(self, candidate: Candidate) -> None:
        ranker, test = candidate.trained(), lists(seed=9)
        scores, ranks = ranker.predict(test), ranker.rank(test)
        for which in range(len(test)):
            rows = rows_of_list(test, which)
            assert sorted(ranks[rows]) == list(range(1, rows.size + 1))
            by_rank = scores[rows][np.argsort(ranks[rows])]
            assert (np.diff(by_rank) <= 0).all()

    def test_inputs_are_not_changed(self, candidate: Candidate) -> None:
        # arrays that cannot be written to show any attempt
        data, test = frozen(lists()), frozen(lists(seed=9))
        candidate.train(data).predict(test)
        source = candidate.source(lists())
        before = contents(source)
        candidate.make().fit(source)
        assert contents(source) == before

    def test_a_list_of_one_item(self, candidate: Candidate) -> None:
        data = lists()
        single = RankingDataset(
            np.concatenate([data.features, np.ones((1, WIDTH))]),
            [*data.offsets, data.rows + 1],
            group=[*data.group, 0],
            group_names=data.group_names,
            relevance=[*(data.relevance if data.relevance is not None else ()), 1.0],
        )
        ranker = candidate.train(single)
        assert ranker.rank(single)[-1] == 1
        assert np.isfinite(ranker.predict(single)).all()

    def test_one_group(self, candidate: Candidate) -> None:
        if candidate.needs_groups:
            with pytest.raises(InputError, match="no two groups"):
                candidate.train(lists(groups=1))
            return
        ranker = candidate.train(lists(groups=1))
        assert np.isfinite(ranker.predict(lists(seed=9))).all()

    @pytest.mark.parametrize("share", [0.3, 1.0])
    def test_unknown_groups(self, candidate: Candidate, share: float) -> None:
        data = lists()
        group = np.where(np.random.default_rng(1).random(data.rows) < share, -1, data.group)
        if candidate.needs_groups and share == 1:
            with pytest.raises(InputError, match="no two groups"):
                candidate.train(replace(data, group=group))
            return
        ranker = candidate.train(replace(data, group=group))
        assert np.isfinite(ranker.predict(lists(seed=9))).all()

    def test_queries_without_a_click(self, candidate: Candidate) -> None:
        if candidate.labelled:
            data = lists()
            assert data.relevance is not None
            nothing = replace(data, relevance=np.where(data.list_of_row < 4, 0, data.relevance))
            assert np.isfinite(candidate.train(nothing).predict(lists(seed=9))).all()
            return
        log = clicks_on(lists())
        silent = log.data.list_of_row[log.row_of_entry] < 4
        quiet = replace(log, click=log.click & ~silent)
        assert np.isfinite(candidate.make().fit(quiet).predict(lists(seed=9))).all()

    def test_another_number_of_features_is_refused(self, candidate: Candidate) -> None:
        ranker, test = candidate.trained(), lists(seed=9)
        for width in (WIDTH - 1, WIDTH + 1, 1):
            other = RankingDataset(np.ones((test.rows, width)), test.offsets)
            for use in (ranker.predict, ranker.rank, lambda data: ranker.sample_rankings(data, 2)):
                with pytest.raises(InputError, match="features"):
                    use(other)

    def test_features_are_found_by_name(self, candidate: Candidate) -> None:
        names = ("salary", "age", "distance", "remote")
        ranker, test = candidate.train(replace(lists(), feature_names=names)), lists(seed=9)
        test = replace(test, feature_names=names)
        frame = frame_of(test)
        mixed = frame.sample(fraction=1.0, shuffle=True, seed=3).select(reversed(frame.columns))
        rows = mixed["row"].to_numpy()
        uses = (ranker.predict, ranker.rank, lambda data: by_row(ranker.sample_rankings(data, 2, seed=1)))
        expected = [use(test) for use in uses]
        turned = replace(test, features=test.features[:, ::-1], feature_names=names[::-1])
        for use, known in zip(uses, expected, strict=True):
            np.testing.assert_allclose(use(turned), known, atol=1e-6)
            for one in (frame, frame.to_pandas(), frame.to_arrow(), frame.to_dict(as_series=False)):
                np.testing.assert_allclose(use(one), known, atol=1e-6)
        np.testing.assert_allclose(ranker.predict(mixed), expected[0][rows], atol=1e-6)
        for other in (frame.rename({"feature_age": "years"}), frame.drop("feature_age")):
            for use in (*uses, ranker.evaluate):
                with pytest.raises(InputError, match="column 'feature_age': the column is missing"):
                    use(other)
        found = ranker.evaluate(test, intervals=None)
        again = ranker.evaluate(frame, intervals=None)
        assert (again.dcg, again.disparity) == pytest.approx((found.dcg, found.disparity))

    def test_it_cannot_be_used_before_it_is_trained(self, candidate: Candidate) -> None:
        ranker, test = candidate.make(), lists(seed=9)
        for use in (ranker.predict, ranker.rank, lambda data: ranker.sample_rankings(data, 2)):
            with pytest.raises(NotFittedError, match="fit"):
                use(test)

    def test_counts_train_like_the_log(self, candidate: Candidate) -> None:
        log, test = clicks_on(lists()), lists(seed=9)
        if candidate.per_impression:
            with pytest.raises(InputError, match="single impressions"):
                candidate.make().fit(log.compact())
            return
        once, counted = (candidate.make().fit(source) for source in (log, log.compact()))
        np.testing.assert_array_equal(once.predict(test), counted.predict(test))

    def test_the_position_bias_is_kept(self, candidate: Candidate) -> None:
        assert candidate.trained().position_bias_ == BIAS
