"""The diagram and the table of stages are those of the import contract."""

from __future__ import annotations

import xml.etree.ElementTree

from tools import architecture


def test_the_diagram_is_current() -> None:
    assert architecture.DIAGRAM.read_text(encoding="utf-8") == architecture.diagram(), (
        "run python -m tools.architecture"
    )


def test_the_table_of_stages_is_current() -> None:
    page = architecture.PAGE.read_text(encoding="utf-8")
    assert architecture.TABLE.search(page)
    assert architecture.with_table(page) == page, "run python -m tools.architecture"


def test_every_module_of_the_package_is_a_stage() -> None:
    stages = {stage for layer in architecture.layers() for stage in layer}
    modules = {path.stem for path in architecture.PACKAGE.glob("*.py")}
    packages = {path.parent.name for path in architecture.PACKAGE.glob("*/__init__.py")}
    assert modules | packages == stages | {"__init__"}


def test_the_diagram_is_a_picture() -> None:
    xml.etree.ElementTree.fromstring(architecture.diagram())
