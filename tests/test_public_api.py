"""The public surface changes on purpose only, and modules keep to the public names of each other."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.public_api import FILE, public_api

SOURCES = sorted((Path(__file__).parents[1] / "src" / "fultr").rglob("*.py"))


def test_the_public_names_and_signatures_are_those_of_the_snapshot() -> None:
    expected = FILE.read_text(encoding="utf-8")
    assert public_api() == expected, "if this is meant: python -m tests.public_api"


def test_no_private_name_is_imported_by_another_module() -> None:
    found = [
        f"{path.name}: {node.module}.{alias.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fultr")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert found == []


def test_a_class_name_means_one_thing() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(path.name)
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
