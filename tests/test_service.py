"""The service: what it answers, and what it says of requests that it cannot use."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fultr
from fultr import FairRanker, InputError
from tests.served_policies import FEATURES, candidates, linear_policy

pytest.importorskip("starlette")

from fultr.serving.events import DAY
from fultr.serving.openapi import openapi
from fultr.serving.policies import ServedPolicies
from fultr.serving.requests import RankRequest, rank_request
from fultr.serving.settings import Fallback, ServiceSettings
from fultr.serving.stores import Durability, StoreError
from tests.asgi import NOON, Client, Clock, with_service
from tests.training_tasks import BIAS


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return linear_policy(tmp_path / "policy.safetensors")


def settings(policy: Path, **more: Any) -> ServiceSettings:
    given = {"policies": [policy], "events": policy.parent / "events", **more}
    return ServiceSettings(**given)


def test_a_session_sees_the_same_ranking_again_and_page_two_continues_it(policy: Path) -> None:
    asked: dict[str, Any] = {"query_id": "nurse", "candidates": candidates(), "top_k": 2, "session": "s1"}

    async def work(client: Client) -> None:
        first = await client.rank(asked)
        assert await client.rank(asked) == first
        for wrong in ({"session": None, "offset": 2}, {"offset": 6}):
            answer = await client.ask("POST", "/rank", {**asked, **wrong})
            assert answer.status == 422
            assert "'offset'" in answer.json["error"]
        # candidates in another order, features as a vector: the same ranking
        vectors = [{**one, "features": list(one["features"].values())} for one in asked["candidates"]]
        second = await client.rank({**asked, "candidates": vectors[::-1], "offset": 2})
        assert second["ranking_id"] == first["ranking_id"]
        whole = await client.rank({**asked, "top_k": None})
        assert whole["ids"] == [*first["ids"], *second["ids"], *whole["ids"][4:]]
        others = {tuple((await client.rank({**asked, "session": f"s{n}"}))["ids"]) for n in range(30)}
        assert len(others) > 5
        fresh = [await client.rank({**asked, "session": None}) for _ in range(30)]
        assert len({one["ranking_id"] for one in fresh}) == 30
        assert len({tuple(one["ids"]) for one in fresh}) > 5

        for one in (first, *fresh):
            await client.click({"ranking_id": one["ranking_id"], "positions": [1]})

    with_service(settings(policy), work)
    # what a session saw again is one impression, as deep as it went
    log = fultr.read_log(policy.parent / "events")
    assert len(log) == 30 + 30  # sessions, and requests without one
    assert int(log.click.sum()) == 31


def test_the_next_day_draws_another_ranking(policy: Path) -> None:
    clock = Clock()
    asked = {"query_id": "nurse", "candidates": candidates(9), "session": "s1"}

    async def work(client: Client) -> list[Any]:
        shown = []
        for _ in range(4):
            shown.append(await client.rank(asked))
            clock.now += DAY
        return shown

    shown = with_service(settings(policy), work, clock)
    assert len({tuple(one["ids"]) for one in shown}) > 1
    assert [one["ranking_id"][:8] for one in shown] == ["20261118", "20261119", "20261120", "20261121"]
    assert len(list((policy.parent / "events").glob("*.sqlite"))) == 4


def test_rankings_are_drawn_from_the_policy(policy: Path) -> None:
    """Item i comes first with probability softmax(h)_i."""
    given = candidates(4)
    features = np.array([list(one["features"].values()) for one in given])
    scores = features @ [1.0, -0.5, 0.2]
    expected = np.exp(scores) / np.exp(scores).sum()

    async def work(client: Client) -> Counter[str]:
        asked = [{"query_id": "q", "candidates": given, "session": f"{n}"} for n in range(2000)]
        return Counter([(await client.rank(one))["ids"][0] for one in asked])

    first = with_service(settings(policy, durability=Durability.NONE, log_features=False), work)
    for one, probability in zip(given, expected, strict=True):
        error = math.sqrt(probability * (1 - probability) / 2000)
        assert abs(first[one["id"]] / 2000 - probability) < 4.5 * error


WRONG_FEATURES = {
    "missing": ({"salary": 1.0, "distance": 2.0}, "'age': the feature of candidate 'job-1' is missing"),
    "extra": (
        {"salary": 1.0, "distance": 2.0, "age": 3.0, "height": 4.0},
        "'height': the feature of candidate 'job-1' is none",
    ),
    "other": (
        {"salary": 1.0, "distance": 2.0, "ages": 3.0},
        "'age': the feature of candidate 'job-1' is missing",
    ),
    "text": ({"salary": "much", "distance": 2.0, "age": 3.0}, "'salary': the feature of candidate 'job-1'"),
    "null": ({"salary": None, "distance": 2.0, "age": 3.0}, "'salary': the feature of candidate 'job-1'"),
    "list": ({"salary": [1.0], "distance": 2.0, "age": 3.0}, "'salary': the feature of candidate 2, 'job-1'"),
    "huge": ({"salary": 1e300, "distance": 2.0, "age": 3.0}, "'salary': the feature of candidate 'job-1'"),
    "short": ([1.0, 2.0], "must be 3 numbers"),
    "none": (None, "are missing, and the service has no table"),
}


@pytest.mark.parametrize("case", WRONG_FEATURES)
def test_a_wrong_feature_is_named(policy: Path, case: str) -> None:
    features, problem = WRONG_FEATURES[case]
    given = candidates(3)
    given[1]["features"] = features

    async def work(client: Client) -> None:
        answer = await client.ask("POST", "/rank", {"query_id": "q", "candidates": given})
        assert answer.status == 422
        assert problem in answer.json["error"]

    with_service(settings(policy), work)


def test_nan_and_other_requests_that_cannot_be_used_are_refused_by_name(policy: Path) -> None:
    one = {"id": "a", "features": [1, 2, 3]}
    cases: dict[bytes, str] = {
        b'{"query_id":"q","candidates":[{"id":"a","features":{"salary":NaN}}]}': "'salary'",
        b"": "truncated",
        b"[]": "Expected `object`",
        b"\xff": "malformed",
        b"[" * 100_000: "Expected `object`",
        b'{"query_id":"q","candidates":[{"id":"a","features":{"salary":%s}}]}' % (b"9" * 400): "'salary'",
        json.dumps({"query_id": "q", "candidates": []}).encode(): "length >= 1",
        json.dumps({"query_id": "q", "candidates": [one, one]}).encode(): "twice (got 'a')",
        json.dumps({"query_id": "q", "candidates": [one], "topk": 3}).encode(): "topk",
        json.dumps({"query_id": "q", "candidates": [one], "top_k": 0}).encode(): "top_k",
        json.dumps({"query_id": "a\0b", "candidates": [one]}).encode(): "character 0",
        json.dumps({"query_id": "q" * 1000, "candidates": [one]}).encode(): "query_id",
    }

    async def work(client: Client) -> None:
        for raw, problem in cases.items():
            answer = await client.ask("POST", "/rank", raw=raw)
            assert (answer.status, problem in answer.json["error"]) == (422, True), answer
        assert (await client.ask("GET", "/rank")).status == 405
        assert (await client.ask("GET", "/etc/passwd")).status == 404

    with_service(settings(policy), work)


def test_clicks_count_once_and_say_what_is_wrong(policy: Path) -> None:
    clock = Clock()

    async def work(client: Client) -> None:
        shown = await client.rank({"query_id": "q", "candidates": candidates(), "top_k": 3})
        of = {"ranking_id": shown["ranking_id"]}
        for content, new in (
            ({"ids": [shown["ids"][1]]}, 1),
            ({"positions": [2]}, 0),
            ({"ids": [shown["ids"][1]], "click_id": "c1"}, 1),
            ({"ids": [shown["ids"][1]], "click_id": "c1"}, 0),
            ({"positions": [1, 2, 3]}, 2),
        ):
            assert (await client.click({**of, **content})).json["new"] == new
        hidden = next(one["id"] for one in candidates() if one["id"] not in shown["ids"])
        for content, status, problem in (
            ({**of, "ids": [hidden]}, 422, hidden),
            ({**of, "positions": [4]}, 422, "position 4"),
            ({**of}, 422, "must have ids or positions"),
            ({"ranking_id": "20261118-" + 20 * "0", "positions": [1]}, 404, "no ranking"),
            ({"ranking_id": "19990101-" + 20 * "0", "positions": [1]}, 404, "no ranking"),
            ({"ranking_id": "../../../etc/passwd", "positions": [1]}, 422, "ranking_id"),
        ):
            answer = await client.click(content)
            assert (answer.status, problem in answer.json["error"]) == (status, True), answer
        clock.now += 2 * 3_600_000_000 + 1
        assert (await client.click({**of, "positions": [1]})).status == 410
        clock.now = NOON - DAY  # a clock that goes backwards
        assert (await client.click({**of, "positions": [1]})).json["new"] == 0
        text = (await client.ask("GET", "/metrics")).body.decode()
        for outcome, number in (
            ("recorded", 3),
            ("repeated", 3),
            ("unknown", 2),
            ("late", 1),
            ("not shown", 2),
        ):
            assert f'fultr_clicks_total{{outcome="{outcome}"}} {number}.0' in text

    with_service(settings(policy, accept_clicks=2.0), work, clock)


def test_shares_and_shadows(policy: Path, tmp_path: Path) -> None:
    other = linear_policy(tmp_path / "other", [1.0, 0.0], ["salary", "height"])
    given = [{**one, "features": {**one["features"], "height": 1.0}} for one in candidates()]

    async def work(client: Client) -> None:
        versions = [slot.policy.version for slot in client.service.policies.slots]
        arms: dict[int, str] = {}
        for n in range(400):
            asked = {"query_id": f"q{n % 3}", "candidates": given, "session": f"s{n % 200}"}
            shown = await client.rank(asked)
            assert arms.setdefault(n % 200, shown["policy"]) == shown["policy"]
        counted = Counter(arms.values())
        assert set(counted) == {versions[0], versions[1]}
        assert abs(counted[versions[0]] / 200 - 0.7) < 4 * math.sqrt(0.7 * 0.3 / 200)
        assert versions[2] == versions[0]

    both = settings(policy, policies=[policy, other], shares=[0.7, 0.3], shadows=[policy])
    with_service(both, work)
    file = next((policy.parent / "events").glob("*.sqlite"))
    with closing(sqlite3.connect(file)) as connection:
        pairs = connection.execute(
            "SELECT i.doc_ids, s.doc_ids, i.policy = s.policy"
            " FROM impressions i JOIN shadow_rankings s USING (ranking_id)"
        ).fetchall()
    assert len(pairs) == len({(n % 3, n % 200) for n in range(400)})
    assert any(shown != shadow for shown, shadow, same in pairs if not same)
    assert all(shown == shadow for shown, shadow, same in pairs if same)


def test_a_policy_is_replaced_while_the_service_runs_and_stays_if_the_new_one_is_bad(
    policy: Path, tmp_path: Path
) -> None:
    asked = {"query_id": "q", "candidates": candidates(), "session": "s"}
    good = linear_policy(tmp_path / "good", [5.0, 0.0, 0.0]).read_bytes()
    bad = {
        "damaged": good[:-1] + b"x",
        "empty": b"",
        "infinite": linear_policy(tmp_path / "a", [np.inf, 0.0, 0.0]).read_bytes(),
        "two steps": linear_policy(tmp_path / "b", ranker="ExposureLP").read_bytes(),
    }

    async def changed(client: Client, content: bytes | None) -> str:
        policy.unlink(missing_ok=True)
        if content is not None:
            policy.write_bytes(content)
        before = client.service.metrics.reloads.labels("refused")._value.get()
        for _ in range(500):
            await asyncio.sleep(0.02)
            now = client.service.policies.shown[0].policy.version
            if now != versions[0] or client.service.metrics.reloads.labels("refused")._value.get() > before:
                break
            if content is None:
                break
        return str((await client.rank(asked))["policy"])

    versions: list[str] = []

    async def work(client: Client) -> None:
        versions.append((await client.rank(asked))["policy"])
        for content in bad.values():
            assert await changed(client, content) == versions[0]
        assert await changed(client, None) == versions[0]
        assert await changed(client, good) != versions[0]

    with_service(settings(policy, reload_seconds=0.01), work)


def test_policies_are_reloaded_again_after_events_could_not_be_recorded(policy: Path, tmp_path: Path) -> None:
    others = [linear_policy(tmp_path / f"{n}", [n, 0.0, 0.0]).read_bytes() for n in (2.0, 3.0)]

    async def work(client: Client) -> None:
        service = client.service
        slot, announce = service.policies.shown[0], service.writer.record_later

        def full(_event: Any) -> None:
            raise StoreError("too many events are waiting")

        announced: list[Any] = []
        for content, record in zip(others, (full, announced.append), strict=True):
            service.writer.record_later = record  # type: ignore[method-assign, assignment]
            before = slot.policy.version
            policy.unlink()
            policy.write_bytes(content)
            for _ in range(500):
                await asyncio.sleep(0.02)
                if slot.policy.version != before and service.is_announced == (record is not full):
                    break
            assert slot.policy.version != before
        assert slot.policy.version in [one.version for one in announced]
        service.writer.record_later = announce  # type: ignore[method-assign]

    with_service(settings(policy, reload_seconds=0.01), work)


def test_the_order_of_the_request_is_shown_if_scoring_fails(policy: Path) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    asked = {"query_id": "q", "candidates": candidates(), "top_k": 3}

    async def work(client: Client) -> None:
        client.service.policies.shown[0].ranking = fail  # type: ignore[method-assign, assignment]
        answer = await client.ask("POST", "/rank", asked)
        if client.service.settings.fallback is Fallback.ERROR:
            assert answer.status == 500
            assert "could not rank" in answer.json["error"]
            return
        assert answer.json["ids"] == ["job-0", "job-1", "job-2"]
        assert answer.json["policy"] == "fallback"
        assert b"fultr_scoring_failures_total 1.0" in (await client.ask("GET", "/metrics")).body

    with_service(settings(policy), work)
    with_service(settings(policy, fallback=Fallback.ERROR), work)


def test_a_table_of_items_spares_features(policy: Path, tmp_path: Path) -> None:
    import polars as pl

    given = candidates()
    table = {name: [one["features"][name] for one in given] for name in FEATURES[::-1]}
    pl.DataFrame(
        {"doc_id": [one["id"] for one in given], "group": [one["group"] for one in given], **table}
    ).write_parquet(tmp_path / "items.parquet")
    ids = [{"id": one["id"]} for one in given]

    async def work(client: Client) -> None:
        by_id = await client.rank({"query_id": "q", "candidates": ids, "session": "s"})
        given_whole = await client.rank({"query_id": "q", "candidates": given, "session": "s"})
        assert by_id["ids"] == given_whole["ids"]
        answer = await client.ask("POST", "/rank", {"query_id": "q", "candidates": [{"id": "job-77"}]})
        assert answer.status == 422
        assert "'job-77'" in answer.json["error"]

    with_service(settings(policy, items=tmp_path / "items.parquet"), work)


def test_categories_and_missing_values_are_given_as_they_are(tmp_path: Path) -> None:
    import polars as pl

    from tests.test_feature_encoding import COLOURS, PRICES, trained

    full = trained("indicator", hidden=(4,), model="mlp")
    path = fultr.save(full, tmp_path / "policy")
    colours = ["violet", *COLOURS[1:]]  # a colour that the training did not have
    with pytest.warns(fultr.FultrWarning, match="violet"):
        expected = full.predict(
            pl.DataFrame({"price": PRICES, "colour": colours, "remote": [True, False] * 3})
        )
    given = [
        {"id": f"{number}", "features": {"price": price, "colour": colour, "remote": number % 2 == 0}}
        for number, (price, colour) in enumerate(zip(PRICES, colours, strict=True))
    ]
    names = list(full.feature_names_in_)
    vectors = [{**one, "features": [one["features"][name] for name in names]} for one in given]  # type: ignore[index]
    pl.DataFrame(
        {"doc_id": [f"{number}" for number in range(6)], "price": PRICES, "colour": colours}
        | {"remote": [True, False] * 3}
    ).write_parquet(tmp_path / "items.parquet")

    async def work(client: Client) -> None:
        policies = client.service.policies
        for candidates_given in (given, vectors):
            asked = rank_request(json.dumps({"query_id": "q", "candidates": candidates_given}).encode())
            rows = policies.reader.rows(asked.candidates)
            scores = policies.shown[0].policy.scores(rows, None, policies.shown[0].category_names)
            np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
        for n in range(5):
            ranked = await client.rank({"query_id": f"q{n}", "candidates": given, "session": "s"})
            await client.click({"ranking_id": ranked["ranking_id"], "positions": [1]})
            if policies.items is not None:
                ids = [{"id": one["id"]} for one in given]
                by_id = await client.rank({"query_id": f"q{n}", "candidates": ids, "session": "s"})
                assert by_id["ids"] == ranked["ids"]

    with_service(settings(path, items=tmp_path / "items.parquet", events=tmp_path / "other"), work)
    with_service(settings(path), work)
    counts = fultr.count(tmp_path / "events", keep_missing=True)
    assert counts.data.category_names["colour"] == ("blue", "green", "red", "(other)")
    again = FairRanker(0.0, missing="mean", l2=0.1, folds=0, position_bias=BIAS).fit(counts)
    assert again.encoding_.categories == ("colour", "remote")
    retrained = fultr.save(again, tmp_path / "retrained")

    async def rank(client: Client) -> None:
        ranked = await client.rank({"query_id": "q", "candidates": given})
        assert ranked["policy"] == client.service.policies.shown[0].policy.version

    with_service(settings(retrained, events=tmp_path / "third", fallback=Fallback.ERROR), rank)


def trained_on(colours: list[str | None], path: Path, missing: str | None = "mean") -> FairRanker:
    """Save a policy that was trained on items of these colours."""
    from tests.test_feature_encoding import SETTINGS, shown

    chosen = {**SETTINGS, "missing": missing, "categories": ["colour", "remote"]}
    ranker = FairRanker(0.0, **chosen).fit(shown(60, colour=colours, price=range(6)))
    fultr.save(ranker, path)
    return ranker


def test_a_new_policy_reads_the_categories_of_the_table_of_items_as_they_are(tmp_path: Path) -> None:
    import polars as pl

    from tests.test_feature_encoding import items

    path, table = tmp_path / "policy", tmp_path / "items.parquet"
    colours: list[str | None] = ["blue", "red", "green", "red", "blue", None]
    items(price=range(6), colour=colours).with_columns(pl.col("doc_id").cast(str)).write_parquet(table)
    trained_on(["blue", "red", "green", "red", "blue", "red"], path)
    served = ServedPolicies([path], [1.0], items=table)
    trained_on(["blue", "red", "violet", "red", "blue", "red"], path)
    (change,) = served.replaced()
    assert change.new is None
    assert change.problem.startswith("column 'colour'")
    assert "without a category" in change.problem
    assert "'violet'" in change.problem
    trained_on(["blue", "red", "green", "red", "blue", "red"], path, missing=None)
    (change,) = served.replaced()
    assert "missing values" in change.problem
    fewer = trained_on(["red", "red", "green", "red", "green", "red"], path)
    served.apply(served.replaced())
    slot = served.shown[0]
    rows, _ = served.items.find("q", [f"{n}" for n in range(6)])  # type: ignore[union-attr]
    with pytest.warns(fultr.FultrWarning, match="blue"):
        expected = fewer.predict(items(price=range(6), colour=colours))
    np.testing.assert_allclose(slot.policy.scores(rows, None, slot.category_names), expected, rtol=1e-5)


def test_recorded_categories_have_the_names_of_their_policy_after_a_reload(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    trained_on(["blue", "red", "green", "red", "blue", "red"], one)
    trained_on(["violet", "red", "amber", "red", "violet", "red"], other)
    colours = ["amber", "blue", "green", "red", "violet", "unseen", None]
    given = [
        {"id": f"{colour}", "features": {"price": 1.0, "colour": colour, "remote": False}}
        for colour in colours
    ]

    async def work(client: Client) -> None:
        policies = client.service.policies
        asked = {"query_id": "q", "candidates": given}
        await client.rank(asked)
        trained_on(["amber", "red", "violet", "red", "black", "red"], other)
        policies.apply(policies.replaced())
        client.service._announce_policies()
        await client.rank(asked)
        policies.shown[0], policies.shadows[0] = policies.shadows[0], policies.shown[0]
        policies.apply([])
        client.service._announce_policies()
        await client.rank(asked)
        policies.shown[0].ranking = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
        await client.rank(asked)

    with_service(settings(one, shadows=[other], reload_seconds=0.0), work)
    file = next((tmp_path / "events").glob("*.sqlite"))
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(
            "SELECT i.policy, i.doc_ids, i.features, p.features"
            " FROM impressions i JOIN policies p ON i.policy = p.version ORDER BY i.rowid"
        ).fetchall()
    assert [policy.startswith("fallback-") for policy, *_ in rows] == [False, False, False, True]
    for number, (_, documents, features, about) in enumerate(rows):
        named = json.loads(about)
        at = next(index for index, one in enumerate(named) if one != "price" and one["name"] == "colour")
        table = np.frombuffer(features, "<f4").reshape(len(given), len(named))
        own = {"red", *(("blue", "green") if number < 2 else ("amber", "violet"))}
        for document, code in zip(json.loads(documents), table[:, at], strict=True):
            if document == "None":
                assert np.isnan(code)
            else:
                expected = document if document in own else "(other)"
                assert named[at]["categories"][int(code)] == expected


def test_the_token_is_asked_of_all_but_the_probes(policy: Path) -> None:
    token = "a secret of 20 signs"

    async def work(client: Client) -> None:
        asked = {"query_id": "q", "candidates": candidates()}
        for headers in ({}, {"Authorization": token}, {"Authorization": f"Bearer {token}!"}):
            for method, path in (
                ("POST", "/rank"),
                ("POST", "/clicks"),
                ("GET", "/metrics"),
                ("GET", "/monitor"),
            ):
                answer = await client.ask(method, path, asked, headers=headers)
                assert answer.status == 401, path
        await client.rank(asked, headers={"Authorization": f"Bearer {token}"})
        for path in ("/healthz", "/readyz"):
            assert (await client.ask("GET", path)).status == 200

    with_service(settings(policy, token=token), work)
    assert token not in repr(settings(policy, token=token))
    with pytest.raises(InputError, match="16 characters"):
        settings(policy, token="short")


def test_requests_may_be_neither_too_large_nor_too_many_nor_too_slow(policy: Path) -> None:
    asked = {"query_id": "q", "candidates": candidates()}

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1000

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)
        yield b"}"

    async def work(client: Client) -> None:
        assert (await client.ask("POST", "/rank", raw=b" " * 5001)).status == 413
        assert (await client.ask("POST", "/rank", headers={"Content-Length": "5001"})).status == 413
        assert (await client.ask("POST", "/rank", parts=endless)).status == 413
        assert (await client.ask("POST", "/rank", parts=slow)).status == 408
        statuses = Counter([(await client.ask("POST", "/rank", asked)).status for _ in range(300)])
        assert set(statuses) == {200, 429}
        assert statuses[200] < 250
        # others are not held back by that
        await client.rank(asked, address="127.0.0.2")

    with_service(settings(policy, max_body=5000, body_seconds=0.05, rate=100.0), work)


def test_without_a_store_rankings_go_on_and_clicks_are_sent_again(policy: Path) -> None:
    asked = {"query_id": "q", "candidates": candidates(), "session": "s"}

    async def work(client: Client) -> None:
        store = client.service.writer.store
        works = store.write
        assert (await client.rank(asked))["recorded"]

        def fail(_events: Any) -> Any:
            raise StoreError("the disk is full")

        store.write = fail  # type: ignore[method-assign, assignment]
        shown = await client.rank({**asked, "session": "other"})
        assert not shown["recorded"]
        assert (await client.click({"ranking_id": shown["ranking_id"], "positions": [1]})).status == 503
        assert (await client.ask("GET", "/readyz")).status == 503
        assert (await client.ask("GET", "/healthz")).status == 200
        assert b"fultr_unrecorded_rankings_total 1.0" in (await client.ask("GET", "/metrics")).body
        store.write = works  # type: ignore[method-assign]
        again = await client.rank({**asked, "session": "other"})
        assert again == {**shown, "recorded": True}
        assert (await client.click({"ranking_id": shown["ranking_id"], "positions": [1]})).json["new"] == 1
        assert (await client.ask("GET", "/readyz")).status == 200

    with_service(settings(policy), work)


def test_rankings_wait_for_a_store_that_hangs_no_longer_than_said(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fultr.serving.writer.BUSY_SECONDS", 0.05)
    asked = {"query_id": "q", "candidates": candidates()}

    async def work(client: Client) -> None:
        store, may_go_on = client.service.writer.store, threading.Event()
        works = store.write

        def hang(events: Any) -> Any:
            may_go_on.wait(60)
            return works(events)

        store.write = hang  # type: ignore[method-assign]
        shown = await client.rank(asked)
        assert not shown["recorded"]
        assert (await client.click({"ranking_id": shown["ranking_id"], "positions": [1]})).status == 503
        assert not may_go_on.is_set()
        may_go_on.set()

    with_service(settings(policy), work)


def test_openapi_says_what_the_service_takes(policy: Path) -> None:
    about = openapi(with_token=True)
    properties = about["components"]["schemas"]["RankRequest"]["properties"]
    assert set(properties) == set(RankRequest.__struct_fields__)

    async def work(client: Client) -> None:
        assert (await client.ask("GET", "/openapi.json")).json["paths"].keys() == about["paths"].keys()
        page = (await client.ask("GET", "/docs")).body.decode()
        assert "://" not in page
        for name in about["components"]["schemas"]:
            assert f'id="{name}"' in page

    with_service(settings(policy), work)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"policies": []}, "at least one policy"),
        ({"shares": [0.5, 0.6]}, "one for each policy"),
        ({"shares": [0.5]}, "must add to 1"),
        ({"events": "mysql://somewhere"}, "postgresql://"),
    ],
)
def test_settings_that_make_no_sense_are_refused(policy: Path, change: dict[str, Any], problem: str) -> None:
    async def work(_client: Client) -> None:
        return None

    with pytest.raises(InputError, match=problem):
        with_service(settings(policy, **change), work)
