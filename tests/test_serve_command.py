"""`fultr serve`: what it refuses before it listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.commands import refusal, result_of
from tests.served_policies import linear_policy

pytest.importorskip("starlette")


def test_what_cannot_be_served_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, events = linear_policy(tmp_path / "policy"), tmp_path / "events"
    token = tmp_path / "token"
    token.write_text("short\n", encoding="utf-8")
    bad = tmp_path / "bad"
    bad.write_bytes(b"nothing")
    for arguments, problem in (
        ((tmp_path / "none", "--events", events), "none"),
        ((bad, "--events", events), "no safetensors file"),
        ((policy, policy, "--events", events, "--share", "0.5"), "one for each policy"),
        ((policy, "--events", events, "--token-file", token), "16 characters"),
        ((policy, "--events", events, "--token-file", tmp_path / "none"), "cannot be read"),
        ((policy, "--events", "s3://bucket"), "postgresql://"),
        ((policy, "--events", events, "--items", tmp_path / "none.parquet"), "none.parquet"),
    ):
        assert problem in refusal(capsys, "serve", *arguments)


@pytest.mark.slow
def test_a_port_in_use_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = linear_policy(tmp_path / "policy")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = result_of(capsys, "serve", policy, "--events", tmp_path / "events", "--port", port)
    assert code == 2
    assert not out
    assert f"cannot listen on 127.0.0.1, port {port}" in err.splitlines()[-1]
