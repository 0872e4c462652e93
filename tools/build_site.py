"""Build the documentation into site/, with warnings as errors; it can be read from disk without a network.

Zensical makes the pages. Here formulas become MathML, which browsers draw without a script, and the pages
are checked: every link within the site leads to a page and an anchor that exist, and no page asks another
host for anything. Links to other hosts are listed in site/external-links.txt; they are not fetched.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import ziamath
from latex2mathml.converter import convert

ROOT = Path(__file__).parent.parent
SITE = ROOT / "site"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
LOADED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "manifest", "modulepreload"}


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes of a tag that name or address something."""
        given = {name: value for name, value in attrs if value}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        kinds = set(given.get("rel", "").split())
        if tag == "link" and not kinds & LOADED_LINKS:
            return
        self.loaded += [given[name] for name in ("src", "href") if (tag, name) in LOADED and name in given]


def mathml(formula: re.Match[str]) -> str:
    """Return a formula of LaTeX as MathML."""
    display = "block" if formula[2] == "[" else "inline"
    return str(convert(html.unescape(formula[3]).strip(), display=display))


def draw_formulas(pages: list[Path]) -> int:
    """Replace the formulas of all pages by MathML; return how many there were."""
    count = 0
    for path in pages:
        text, number = FORMULA.subn(mathml, path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        count += number
    font = Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"
    shutil.copy(font, SITE / "assets" / font.name)
    return count


def target_of(path: Path, link: str) -> tuple[Path, str]:
    """Return the file and the anchor that a link of a page leads to."""
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    return (target / "index.html" if target.is_dir() else target), unquote(parts.fragment)


def problems_of(path: Path, pages: dict[Path, Page], external: set[str]) -> list[str]:
    """Return what is wrong with the links of a page, and add those to other hosts to `external`."""
    page, problems = pages[path], []
    for address in page.loaded:
        if urlsplit(address).netloc:
            problems.append(f"asks another host for {address}")
        elif not target_of(path, address)[0].exists():
            problems.append(f"loads {address}, which does not exist")
    for link in page.links:
        if urlsplit(link).scheme or urlsplit(link).netloc:
            external.add(link)
            continue
        target, anchor = target_of(path, link)
        if not target.exists():
            problems.append(f"links to {link}, which does not exist")
        elif anchor and target in pages and anchor not in pages[target].anchors:
            problems.append(f"links to {link}, an anchor that does not exist")
    return [f"{path.relative_to(SITE)}: {problem}" for problem in problems]


def check(paths: list[Path]) -> tuple[list[str], set[str]]:
    """Return what is wrong with the site, and the links to other hosts."""
    pages = {path.resolve(): Page(path) for path in paths}
    external: set[str] = set()
    problems = [problem for path in pages for problem in problems_of(path, pages, external)]
    for sheet in SITE.rglob("*.css"):
        for address in re.findall(r"url\(\s*[\"']?(https?:)?//[^)]*\)", sheet.read_text(encoding="utf-8")):
            problems.append(f"{sheet.relative_to(SITE)}: asks another host for {address}")
    return problems, external


def main() -> None:
    """Build and check the site; exit with 1 if anything is wrong with it."""
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = str(Path(sys.executable).with_name("zensical"))
    built = subprocess.run(
        [zensical, "build", "--clean", "--strict"],
        cwd=ROOT,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    warned = built.returncode or re.search("^(griffe|mkdocs).*:", built.stdout, re.MULTILINE)
    if warned:  # strict mode knows nothing of warnings about docstrings
        sys.exit(f"{built.stdout}\nthe pages could not be made without warnings")
    (SITE / "404.html").unlink()  # of a server; its addresses start at the root
    paths = sorted(SITE.rglob("*.html"))
    formulas = draw_formulas(paths)
    problems, external = check(paths)
    listed = "".join(f"{link}\n" for link in sorted(external))
    (SITE / "external-links.txt").write_text(listed, encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(paths)} pages, {formulas} formulas, {len(external)} links to other hosts")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
