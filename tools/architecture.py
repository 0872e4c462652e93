"""Draw the architecture, and write the table of stages, from the import contract in pyproject.toml.

`python -m tools.architecture` writes docs/images/architecture.svg, and the table in docs/contributing.md
between its two comments. What a stage holds is the first line of its docstring.
"""

from __future__ import annotations

import ast
import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "fultr"
DIAGRAM = ROOT / "docs" / "images" / "architecture.svg"
PAGE = ROOT / "docs" / "contributing.md"
TABLE = re.compile("(<!-- stages: .*? -->\n).*?(<!-- end of stages -->)", re.DOTALL)
WIDTH, ROW, GAP, MARGIN, NAME_WIDTH = 860, 30, 6, 12, 150
"""Of the diagram, in pixels."""


def layers() -> list[list[str]]:
    """Return the stages of the import contract, from the highest down; those of one layer stand together."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (described,) = contract["tool"]["importlinter"]["contracts"]
    return [[name.strip() for name in re.split(r"[|:]", layer)] for layer in described["layers"]]


def description(stage: str) -> str:
    """Return the first line of the docstring of a stage, without its full stop."""
    folder, module = PACKAGE / stage / "__init__.py", PACKAGE / f"{stage}.py"
    source = folder if folder.exists() else module
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    if not docstring:
        raise ValueError(f"{source} has no docstring")
    return docstring.splitlines()[0].rstrip(".")


def table() -> str:
    """Return the table of stages, in Markdown, from those that import nothing upwards."""
    rows = [(stage, description(stage)) for layer in reversed(layers()) for stage in layer]
    return "| stage | holds |\n|---|---|\n" + "".join(f"| `{stage}` | {text} |\n" for stage, text in rows)


def _box(stage: str, top: int) -> str:
    middle, holds = top + ROW / 2 + 5, description(stage).replace("`", "")
    return (
        f'<rect x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{ROW}" rx="5" fill="#eaf2f8"'
        f' stroke="#0072b2"/>'
        f'<text x="{MARGIN + 12}" y="{middle}" font-weight="bold">{escape(stage)}</text>'
        f'<text x="{MARGIN + NAME_WIDTH}" y="{middle}" fill="#333333">{escape(holds)}</text>'
    )


def diagram() -> str:
    """Return the stages as one SVG picture: each imports from those below it only."""
    boxes, top = [], MARGIN
    for layer in layers():
        for stage in layer:
            boxes.append(_box(stage, top))
            top += ROW + (0 if stage != layer[-1] else GAP)
    height = top + 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="13">\n'
        "<title>The stages of fultr. Each imports only from those below it.</title>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        + "\n".join(boxes)
        + f'\n<text x="{MARGIN + 12}" y="{top + 18}" fill="#333333">A stage imports only from stages'
        " below it. Boxes without a gap are independent of each other.</text>\n</svg>\n"
    )


def with_table(page: str) -> str:
    """Return a page with the table of stages as it should be."""
    return TABLE.sub(lambda match: match[1] + table() + match[2], page)


def main() -> None:
    """Write the diagram and the table."""
    DIAGRAM.write_text(diagram(), encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
