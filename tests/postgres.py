"""A PostgreSQL server for tests: a temporary folder, a socket within it, and no port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def programs() -> Path | None:
    """Return the folder with the programs of PostgreSQL, the newest if there are several."""
    named = shutil.which("initdb")
    if named is not None:
        return Path(named).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: int(one.parts[4]))
    return versions[-1].parent if versions else None


class Server:
    """A server that can be stopped and started again."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder, self.bin = folder, bin_folder
        self.url = f"postgresql:///postgres?host={folder}&user=postgres"

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL, as another user if this one is root, whom it refuses."""
        command = [str(self.bin / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start the server, without a port."""
        options = f"-c listen_addresses='' -k {self.folder} -c fsync=off -c max_connections=40"
        self.run("pg_ctl", "-D", "data", "-l", "log", "-w", "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server; "immediate" is as if it had been killed."""
        self.run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")


@contextmanager
def postgres_server() -> Iterator[Server]:
    """Run a server until the block ends; skip the test where there is none, but never where it must be."""
    found = programs()
    if found is None:
        if os.environ.get("FULTR_NEEDS_POSTGRES"):
            pytest.fail("PostgreSQL must be installed here: apt-get install postgresql")
        pytest.skip("PostgreSQL is not installed")
    # a socket's path may have 107 characters, which the folders of pytest exceed
    folder = Path(tempfile.mkdtemp(prefix="fultr-pg-"))
    server = Server(folder, found)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        server.run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
