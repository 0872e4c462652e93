"""The tables of events, the same in SQLite and in PostgreSQL, and how old databases become new ones."""

from __future__ import annotations

from typing import NamedTuple

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE policies (
            version TEXT PRIMARY KEY,      -- first digits of the SHA-256 of the policy file
            time BIGINT NOT NULL,          -- when it was loaded first, microseconds since 1970, UTC
            features TEXT NOT NULL,        -- a JSON list of names, or of names with their categories
            groups TEXT NOT NULL           -- names of the groups of its training, a JSON list
        )""",
        """CREATE TABLE impressions (
            ranking_id TEXT PRIMARY KEY,
            time BIGINT NOT NULL,          -- microseconds since 1970, UTC
            query_id TEXT NOT NULL,
            policy TEXT NOT NULL,          -- the version that drew the ranking; fallback- before it: none did
            doc_ids TEXT NOT NULL,         -- all candidates in the order of the ranking, a JSON list
            groups TEXT,                   -- the group of each of them or null, a JSON list
            shown INTEGER NOT NULL,        -- how many were shown: the first ones of doc_ids
            features {bytes}               -- of each of them in turn, float32, little-endian
        )""",
        """CREATE TABLE clicks (
            ranking_id TEXT NOT NULL,
            doc_id TEXT NOT NULL,
            click_id TEXT NOT NULL,        -- of the caller, or empty
            time BIGINT NOT NULL,
            PRIMARY KEY (ranking_id, doc_id, click_id)
        )""",
    ),
    (
        """CREATE TABLE shadow_rankings (
            ranking_id TEXT NOT NULL,      -- the impression at which it was drawn, and not shown
            policy TEXT NOT NULL,
            doc_ids TEXT NOT NULL,         -- all candidates in its order, a JSON list
            PRIMARY KEY (ranking_id, policy)
        )""",
        "CREATE INDEX impressions_by_time ON impressions (time)",
    ),
)
"""What makes each version of the schema out of the one before it; version 1 is the first."""

VERSION_TABLE = "CREATE TABLE IF NOT EXISTS fultr_events (version INTEGER NOT NULL)"


class Dialect(NamedTuple):
    """Where the two databases differ."""

    bytes: str
    largest: str
    mark: str


SQLITE = Dialect(bytes="BLOB", largest="max", mark="?")
POSTGRES = Dialect(bytes="BYTEA", largest="greatest", mark="%s")


class Statements(NamedTuple):
    """What a store asks of a database."""

    impression: str
    shadow: str
    policy: str
    click: str
    shown: str


OLDEST = "SELECT ranking_id FROM impressions WHERE time < %s ORDER BY time LIMIT %s"
"""The first rankings before a moment, in PostgreSQL; of SQLite whole files are removed."""

REMOVALS = (
    "DELETE FROM clicks WHERE ranking_id = ANY(%s)",
    "DELETE FROM shadow_rankings WHERE ranking_id = ANY(%s)",
    "DELETE FROM impressions WHERE ranking_id = ANY(%s)",
)
"""What removes rankings and all that belongs to them, in PostgreSQL."""


def migration(version: int, dialect: Dialect) -> list[str]:
    """Return the statements that make version `version` of the one before it."""
    return [text.replace("{bytes}", dialect.bytes) for text in MIGRATIONS[version - 1]]


def version_statement(dialect: Dialect) -> str:
    """Return the statement that says which version was made."""
    return f"INSERT INTO fultr_events VALUES ({dialect.mark})"


def statements(dialect: Dialect) -> Statements:
    """Return the statements of a dialect; every value is a parameter."""

    def marks(count: int) -> str:
        return ", ".join([dialect.mark] * count)

    return Statements(
        # the same ranking again is a reload, or a further page of it
        impression=(
            "INSERT INTO impressions (ranking_id, time, query_id, policy, doc_ids, groups, shown, features)"
            f" VALUES ({marks(8)}) ON CONFLICT (ranking_id) DO UPDATE"
            f" SET shown = {dialect.largest}(impressions.shown, excluded.shown)"
        ),
        shadow=f"INSERT INTO shadow_rankings VALUES ({marks(3)}) ON CONFLICT DO NOTHING",
        policy=f"INSERT INTO policies VALUES ({marks(4)}) ON CONFLICT DO NOTHING",
        click=f"INSERT INTO clicks VALUES ({marks(4)}) ON CONFLICT DO NOTHING",
        shown=f"SELECT doc_ids, shown, time FROM impressions WHERE ranking_id = {dialect.mark}",
    )
