"""Events: recorded once, in SQLite and in PostgreSQL alike, and read as a log."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fultr
from fultr import InputError
from fultr.cli.main import run
from fultr.logs.events import event_tables
from tests.commands import json_of, refusal
from tests.postgres import Server, postgres_server

pytest.importorskip("msgspec")

from fultr.serving.events import DAY, Answer, ClickEvent, Impression, Outcome, PolicyLoaded, day_of
from fultr.serving.schema import MIGRATIONS, SQLITE, VERSION_TABLE, migration
from fultr.serving.stores import (
    OPEN_FILES,
    PEER_IS_GONE,
    PostgresStore,
    SQLiteStore,
    Store,
    StoreError,
    open_store,
)
from tests.asgi import NOON

FEATURES = ("salary", "age")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where events go: a folder, or an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "events")
    return fresh_database(request.getfixturevalue("server"))


def fresh_database(server: Server) -> str:
    psycopg = pytest.importorskip("psycopg")
    name = f"test{os.urandom(6).hex()}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.url.replace("/postgres?", f"/{name}?")


def impression(number: int, time: int = NOON, shown: int = 2, **more: Any) -> Impression:
    docs = [f"d{(number + offset) % 4}" for offset in range(4)]
    features = np.array([[int(doc[1]), 1.0] for doc in docs], "<f4")
    given: dict[str, Any] = {
        "ranking_id": f"{day_of(time)}-{number:020x}",
        "time": time,
        "query_id": "nurse",
        "policy": "abc",
        "doc_ids": json.dumps(docs),
        "groups": json.dumps(["even" if int(doc[1]) % 2 == 0 else None for doc in docs]),
        "shown": shown,
        "features": features.tobytes(),
    }
    return Impression(**{**given, **more})


POLICY = PolicyLoaded("abc", NOON, FEATURES, ("even",))


def test_events_are_recorded_once(place: str) -> None:
    store = open_store(place)
    first, second = impression(0), impression(1)
    assert store.write([POLICY, first, second, first]) == [Answer()] * 4
    by_position = ClickEvent(first.ranking_id, NOON, positions=(2,))
    assert store.write([ClickEvent(first.ranking_id, NOON, ("d1", "d1")), by_position]) == [
        Answer(Outcome.RECORDED, 1),
        Answer(Outcome.REPEATED, 0),
    ]
    assert store.write([ClickEvent(first.ranking_id, NOON, ("d2",))])[0] == Answer(
        Outcome.NOT_SHOWN, wrong="d2"
    )
    # a further page
    store.write([impression(0, shown=4), impression(0, shown=1)])
    for clicks, answer in (
        (ClickEvent(first.ranking_id, NOON, ("d2",)), Answer(Outcome.RECORDED, 1)),
        (ClickEvent("20200101-" + 20 * "0", NOON, ("d2",)), Answer(Outcome.UNKNOWN)),
        (ClickEvent(first.ranking_id, NOON + DAY + 1, ("d1",)), Answer(Outcome.LATE)),
    ):
        assert store.write([clicks]) == [answer]
    store.close()
    log = fultr.read_log(place)
    assert len(log) == 2
    assert log.data.feature_names == FEATURES
    assert log.data.group_names == ("even",)
    assert log.data.doc_id is not None
    assert log.data.doc_id.tolist() == ["d0", "d1", "d2", "d3"]
    np.testing.assert_array_equal(log.data.features[:, 0], [0, 1, 2, 3])
    assert log.data.group.tolist() == [0, -1, 0, -1]
    assert log.position.tolist() == [1, 2, 3, 4, 0, 1, 2, 0]
    assert log.click.tolist() == [0, 1, 1, 0, 0, 0, 0, 0]
    assert log.timestamp is not None
    assert str(log.timestamp[0]) == "2026-11-18T11:06:40.000000"


def test_the_command_counts_events(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(place)
    store.write([POLICY, impression(0), impression(1, NOON + DAY), impression(2, NOON + DAY, policy="xyz")])
    store.write(
        [PolicyLoaded("xyz", NOON, FEATURES, ()), ClickEvent(impression(0).ranking_id, NOON, ("d1",))]
    )
    store.close()
    out = tmp_path / "counts.parquet"
    content = json_of(capsys, "count", place, "--context", "policy", "--out", out)
    assert content["impressions"] == 3
    assert content["clicks"] == 1
    counts = fultr.read_counts(out)
    assert counts.context_values == ("abc", "xyz")
    if not place.startswith("postgresql"):
        assert [file.name for file in counts.files] == [
            "events-2026-11-18.sqlite",
            "events-2026-11-19.sqlite",
        ]
        with pytest.raises(InputError, match="counted twice"):
            fultr.count([place, out], context="policy")


@pytest.mark.parametrize("limit", ["IMPRESSIONS_A_BATCH", "BYTES_A_BATCH"])
def test_no_impression_is_lost_between_batches(
    place: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(place)
    events = [impression(number) for number in range(7)]
    store.write([POLICY, *events, *(ClickEvent(one.ranking_id, NOON, positions=(1,)) for one in events)])
    store.close()
    # an impression has between 60 and 120 bytes of candidates, groups and features
    monkeypatch.setattr(f"fultr.logs.events.{limit}", 2 if limit == "IMPRESSIONS_A_BATCH" else 120)
    sizes = [len(batch["click"]) for table in event_tables(place) for batch, _ in table.batches(["click"])]
    assert sizes == [8, 8, 8, 4]
    log = fultr.read_log(place)
    assert len(log) == 7
    assert int(log.click.sum()) == 7
    assert np.bincount(log.position).tolist() == [14, 7, 7]


@pytest.mark.parametrize(
    "features", [("age",), ("age", {"name": "salary", "categories": ["low"]}), None], ids=str
)
@pytest.mark.parametrize("days", [0, 1])
def test_events_of_policies_with_other_features_are_read_without_features(
    place: str, days: int, features: Any
) -> None:
    store = open_store(place)
    other = impression(1, NOON + days * DAY, policy="xyz")
    store.write(
        [POLICY, impression(0), other, ClickEvent(other.ranking_id, NOON + days * DAY, positions=(1,))]
    )
    if features is not None:
        names = [one if isinstance(one, str) else one["name"] for one in features]
        categories = {one["name"]: tuple(one["categories"]) for one in features if isinstance(one, dict)}
        # without categories, the same columns under other names
        store.write([PolicyLoaded("xyz", NOON, tuple(names), (), categories)])
    store.close()
    log = fultr.read_log(place)
    assert len(log) == 2
    assert log.data.features.shape[1] == 0
    assert fultr.count(place).data.features.shape[1] == 0
    with pytest.raises(InputError, match="features"):
        fultr.count(place, features=["features"])


def test_what_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "counts.parquet"
    folder = tmp_path / "events"
    store = open_store(folder)
    store.write([POLICY, impression(0)])
    store.close()
    assert "no clicks" in refusal(capsys, "count", folder, "--out", out)
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"no database at all" * 100)
    assert "bad.sqlite: is no file of events" in refusal(capsys, "count", bad, "--out", out)
    assert "no such file" in refusal(capsys, "count", tmp_path / "none.sqlite", "--out", out)
    url = f"postgresql:///x?host={tmp_path}"
    assert "cannot be read" in refusal(capsys, "count", url, "--out", out)
    with pytest.raises(StoreError, match="cannot be written"):
        open_store(url)


def test_features_come_from_a_table_of_items_in_the_database(server: Server) -> None:
    import psycopg

    url = fresh_database(server)
    store = open_store(url)
    first = impression(0, features=None, groups=None)
    store.write([POLICY, first, ClickEvent(first.ranking_id, NOON, ("d1",))])
    store.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            'CREATE TABLE items (doc_id text, "group" text, salary real, stars int, note text)'
        )
        for number in range(3):
            connection.execute(
                "INSERT INTO items VALUES (%s, %s, %s, %s, 'x')",
                (f"d{number}", "ab"[number % 2], number / 2, 5),
            )
        with pytest.raises(InputError, match=r"missing in the table items.*'d3'"):
            fultr.count(url)
        connection.execute("INSERT INTO items VALUES ('d3', NULL, 7, 1, NULL)")
        counts = fultr.count(url)
        assert counts.data.feature_names == ("salary", "stars")
        np.testing.assert_array_equal(counts.data.features, [[0, 5], [0.5, 5], [1, 5], [7, 1]])
        assert counts.data.group.tolist() == [0, 1, 0, -1]
        connection.execute("INSERT INTO items VALUES ('d3', NULL, 7, 1, NULL)")
        with pytest.raises(InputError, match="twice"):
            fultr.count(url)


def test_an_old_database_becomes_a_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    file = folder / "events-2026-11-18.sqlite"
    with sqlite3.connect(file) as old:
        old.execute(VERSION_TABLE)
        for statement in migration(1, SQLITE):
            old.execute(statement)
        old.execute("INSERT INTO fultr_events VALUES (1)")
        old.execute("INSERT INTO impressions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", impression(0).row)
    old.close()
    store = SQLiteStore(folder)
    shadowed = impression(1, shadows=(("other", '["d1"]'),))
    store.write([POLICY, shadowed, ClickEvent(impression(0).ranking_id, NOON, ("d1",))])
    store.close()
    assert len(fultr.read_log(folder)) == 2
    with sqlite3.connect(file) as new:
        assert new.execute("SELECT max(version) FROM fultr_events").fetchone() == (len(MIGRATIONS),)
        assert new.execute("SELECT policy FROM shadow_rankings").fetchall() == [("other",)]
        new.execute("INSERT INTO fultr_events VALUES (99)")
    new.close()
    (answer,) = store.write([impression(2)])
    assert isinstance(answer, StoreError)
    assert "only a newer fultr knows" in str(answer)


def test_events_older_than_the_retention_go(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fultr.serving.stores.EXPIRED_AT_ONCE", 1)
    store = open_store(place, retention=3)
    old = [impression(number, NOON + number * DAY) for number in range(6)]
    store.write([POLICY, *old])
    clicks = [ClickEvent(old[at].ranking_id, NOON + at * DAY, positions=(1,)) for at in (0, 1, 5)]
    assert store.write(clicks) == [Answer(Outcome.RECORDED, 1)] * 3
    store.expire(NOON + 5 * DAY)
    store.close()
    log = fultr.read_log(place)
    days = sorted({str(one)[:10] for one in log.timestamp})  # type: ignore[union-attr]
    assert days == ["2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23"]
    assert int(log.click.sum()) == 1


def test_retention_removes_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    store = SQLiteStore(folder, retention=1)
    for name in ("notes.txt", "events-2020-01-01.sqlite.bak", "events-old.sqlite"):
        (folder / name).write_text("")
    store.write([impression(0)])
    store.expire(NOON + 30 * DAY)
    assert {one.name for one in folder.iterdir()} == {
        "notes.txt", "events-2020-01-01.sqlite.bak", "events-old.sqlite"
    }  # fmt: skip


def test_a_full_disk_records_all_of_a_batch_or_nothing(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "events")
    store.write([POLICY, impression(0)])
    connection = next(iter(store.files.values()))
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    many = [impression(number, features=b"x" * 4000) for number in range(1, 50)]
    assert all(isinstance(one, StoreError) and "full" in str(one) for one in store.write(many))
    assert connection.execute("SELECT count(*) FROM impressions").fetchone() == (1,)
    connection.execute("PRAGMA max_page_count = 100000")
    store.write(many)
    assert connection.execute("SELECT count(*) FROM impressions").fetchone() == (50,)


def test_clicks_on_a_day_before_all_open_files_are_recorded(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "events", accepted_for=99 * DAY)
    days = [impression(number, NOON + number * DAY) for number in range(OPEN_FILES + 1)]
    store.write([POLICY, *days])
    clicks = [ClickEvent(one.ranking_id, NOON + 9 * DAY, positions=(1,)) for one in days]
    assert store.write(clicks) == [Answer(Outcome.RECORDED, 1)] * len(days)
    assert len(store.files) == OPEN_FILES
    store.close()


def test_a_damaged_file_of_one_day_holds_back_no_other_day(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "events", accepted_for=99 * DAY)
    (tmp_path / "events" / "events-2026-11-18.sqlite").write_bytes(b"no database at all" * 100)
    good = impression(1, NOON + DAY)
    click = ClickEvent(good.ranking_id, NOON + DAY, positions=(1,))
    answers = store.write([POLICY, impression(0), good, click])
    assert [type(one) for one in answers] == [Answer, StoreError, Answer, Answer]
    assert "not a database" in str(answers[1])
    store.close()
    assert len(fultr.read_log(tmp_path / "events" / "events-2026-11-19.sqlite")) == 1


def test_many_services_write_into_one_database(place: str) -> None:
    stores: list[Store] = []
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            store = open_store(place)
            stores.append(store)
            for at in range(20):
                event = impression(1000 * number + at)
                shared = impression(at)
                click = ClickEvent(event.ranking_id, NOON, positions=(1,))
                answers = [*store.write([POLICY, event, shared, click])]
                answers += store.write([ClickEvent(shared.ranking_id, NOON, positions=(2,))])
                errors.extend(one for one in answers if isinstance(one, StoreError))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert not errors
    log = fultr.read_log(place)
    assert len(log) == 4 * 20 + 20
    assert int(log.click.sum()) == 4 * 20 + 20


def test_the_database_may_go_and_come_back(server: Server) -> None:
    url = fresh_database(server)
    store = open_store(url)
    store.write([POLICY, impression(0)])
    server.stop()
    try:
        with pytest.raises(StoreError):
            store.write([impression(1)])
        with pytest.raises(StoreError):
            store.write([impression(1)])
    finally:
        server.start()
    store.write([impression(1), ClickEvent(impression(1).ranking_id, NOON, positions=(1,))])
    store.close()
    assert len(fultr.read_log(url)) == 2


def test_a_broken_connection_is_made_anew_at_once(server: Server) -> None:
    import psycopg

    url = fresh_database(server)
    store = PostgresStore(url)
    store.write([POLICY, impression(0)])
    held = store.connection
    asked = {name: int(value) for name, value in held.info.get_parameters().items() if name in PEER_IS_GONE}
    assert asked == PEER_IS_GONE
    assert held.execute("SHOW statement_timeout").fetchone() == ("10s",)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (held.info.backend_pid,))
    assert store.write([impression(1)]) == [Answer()]
    assert store.connection is not held
    store.close()


def test_ids_are_data_and_never_statements(place: str) -> None:
    nasty = ["'; DROP TABLE impressions; --", '"}]', "\u202e\x1b[31m", "Ω≠<script>", "%s", "?"]
    store = open_store(place)
    event = impression(
        0, doc_ids=json.dumps(nasty), groups=json.dumps(nasty), features=None, query_id=nasty[0]
    )
    store.write([POLICY, event, ClickEvent(event.ranking_id, NOON, (nasty[0],), click_id=nasty[1])])
    store.close()
    log = fultr.read_log(place)
    assert log.data.doc_id is not None
    assert sorted(nasty) == log.data.doc_id.tolist()
    assert run(["count", place, "--out", str(Path(place).parent / "c.txt")]) == 2
