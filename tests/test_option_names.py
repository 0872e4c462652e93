"""Errors of commands name options, never arguments of the library."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fultr
from fultr import FairRanker, PositionBias, count, save, write_dataset
from fultr.cli.main import command_line, options_of
from fultr.cli.option_names import OPTIONS, in_option_names
from fultr.cli.propensity_tables import OPTION_OF
from fultr.errors import InputError
from tests import commands
from tests.job_board import job_board
from tests.weekly_jobs import BIAS, week_of_jobs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job board's log without a position bias, a policy, and labelled lists."""
    folder = tmp_path_factory.mktemp("jobs")
    week_of_jobs(1, impressions=60).write_parquet(folder / "jobs.parquet")
    week_of_jobs(2, impressions=60).write_parquet(folder / "later.parquet")
    clicked = count(folder / "jobs.parquet", position_bias=BIAS)
    save(FairRanker(1.0, l2=0.1).fit(clicked), folder / "policy.safetensors")
    labelled = replace(clicked.data, relevance=(np.arange(clicked.data.rows) % 2).astype(np.float32))
    write_dataset(labelled, folder / "lists.parquet")
    job_board(queries=10, impressions=200).table.write_parquet(folder / "board.parquet")
    (folder / "short.json").write_text('{"values": [1, 0.5, 0.3]}')
    return folder


BAD = {
    "train jobs.parquet --eta 1 --l2=-1 --out OUT": "--l2: ",
    "train jobs.parquet --eta 1 --clip 0 --out OUT": "--clip: ",
    "train jobs.parquet --eta 1 --valid jobs.parquet --out OUT": "--valid: is the same as what is trained on",
    "train jobs.parquet --eta 1 --eps-minus 2 --out OUT": "--eps-minus: ",
    "train jobs.parquet --eta=-1 --out OUT": "--eta: ",
    "evaluate policy.safetensors jobs.parquet --level 2": "--level: ",
    "evaluate policy.safetensors lists.parquet --eps-minus 0.1": "--eps-plus and --eps-minus: relev",
    "audit later.parquet --eta 1 --level 2": "--level: ",
    "simulate german --group nothing --out OUT.parquet": "--group: ",
    "simulate german --split nothing --out OUT.parquet": "--split: ",
    "simulate german --logging-share 2 --out OUT.parquet": "--logging-share is",
    "compare jobs.parquet --eta 1 --methods full --test lists.parquet --out OUT": "--methods: is trained on",
    "compare jobs.parquet --eta 1 --methods magic --test lists.parquet --out OUT": "--methods: no such",
    "compare jobs.parquet --methods fultr --test lists.parquet --out OUT": "--eta or --bias: exposure",
    "train jobs.parquet --eta 1 --max-disparity 1 --protocol paper --out OUT": "--max-disparity: the paper's",
    "train board.parquet --eta 1 --max-disparity 0.01 --l2 0.1 --out OUT": "--max-disparity: ",
    "train jobs.parquet --bias short.json --out OUT": "FOLDER/jobs.parquet, column 'position': position 20",
    "split jobs.parquet --share 2 --out-train OUT.parquet --out-test OUT2.parquet": "--share lies",
}


@pytest.mark.parametrize("line", BAD)
def test_errors_name_options(
    line: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = (".parquet", ".safetensors", ".json")
    arguments = [
        str(folder / part) if part.endswith(files) and "OUT" not in part else part for part in line.split()
    ]
    arguments = [part.replace("OUT", str(tmp_path / "out")) for part in arguments]
    code, _, err = commands.result_of(capsys, *arguments)
    assert code == 2, err
    last, said = err.splitlines()[-1], BAD[line].replace("FOLDER", str(folder))
    assert last.startswith(f"fultr: {said}"), last
    # neither arguments such as name=, nor methods such as name()
    assert not re.search(r"\w=|\w\(", last.removeprefix(f"fultr: {said}").split(" (got ")[0]), last
    assert ADVICE.get(line, "") in last


ADVICE = {
    "train jobs.parquet --eta 1 --max-disparity 1 --protocol paper --out OUT": "only (--lambda)",
    "train board.parquet --eta 1 --max-disparity 0.01 --l2 0.1 --out OUT": "leave them out (--shown-only)",
    "train jobs.parquet --bias short.json --out OUT": "beyond them (--tail power of fultr propensity)",
    "compare jobs.parquet --methods fultr --test lists.parquet --out OUT": "give them (--eta or --bias)",
}
"""What to do about it, by the names of options."""


def test_errors_in_python_name_arguments(folder: Path) -> None:
    counts = count(folder / "board.parquet", position_bias=BIAS)
    with pytest.raises(InputError, match=r"leave them out \(shown_only\(\)\)"):
        FairRanker(max_disparity=0.01, l2=0.1).fit(counts)
    with pytest.raises(InputError, match=r"a fairness weight only \(fairness_weight=\)"):
        FairRanker(max_disparity=1, protocol="paper").fit(counts)
    with pytest.raises(InputError, match=r"what holds beyond them \(beyond=\)"):
        PositionBias([1.0, 0.5]).at([3])
    with pytest.raises(InputError, match=r"give them \(position_bias=\)"):
        FairRanker(1.0).fit(count(folder / "jobs.parquet"))
    # a value follows an argument at once, and an option after a space
    both = InputError("use {on_repeat} 'first', or {valid_share} 0", options=["on_repeat", "valid_share"])
    assert str(both) == "use on_repeat='first', or valid_share=0"
    assert both.in_shell() == "use --on-repeat 'first', or --valid-share 0"


LIBRARY = Path(fultr.__file__).parent
PATTERNS = {
    "an option": re.compile(r"(?<![\w-])--[a-z]"),
    "an argument": re.compile(r"\b[a-z_]+=(?![=\w]*[\"<])|(?<!{)\b[a-z]+_[a-z_]+\("),
}
REWRITTEN = tuple(OPTION_OF)
"""What `fultr propensity` turns into options by itself."""


def messages_of(file: Path) -> list[str]:
    """Return the texts of a module's errors: arguments of InputError, and what is called a problem."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("InputError", "WriteError"):
            found += [*node.args]
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").lower() in (
            *("problem", "rule", "advice", "reason"),
            *("not_identified", "no_two_groups"),
        ):
            found.append(node.value)
    texts = [one.value for node in found for one in ast.walk(node) if isinstance(one, ast.Constant)]
    return [text for text in texts if isinstance(text, str)]


@pytest.mark.parametrize(
    "file",
    [file for file in sorted(LIBRARY.rglob("*.py")) if file.parent.name != "cli"],
    ids=lambda file: str(file.relative_to(LIBRARY)),
)
def test_errors_of_the_library_use_placeholders(file: Path) -> None:
    for message in messages_of(file):
        for what, pattern in PATTERNS.items():
            found = pattern.search(message)
            known = any(argument in message for argument in REWRITTEN)
            assert known or not found, f"{message!r} names {what}; write it as {{name}}, see InputError"


def test_help_of_compare_lists_no_method_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = commands.result_of(capsys, "compare", "--help")
    listed = "".join(out.split()).split("withcommas:")[1].split(".[default")[0].split(",")
    assert "equity-of-attention-true" in listed
    assert not {"full", "full-mlp"} & set(listed)


def test_an_error_about_data_stays_as_it_is() -> None:
    own = {"group": "--group", "seed": "--seed"}
    for error in (
        InputError("is wrong", file="log.csv", column="group"),
        InputError("is wrong", row=3, column="group"),
        InputError("is wrong", column="doc_id"),
        InputError("is wrong"),
    ):
        assert in_option_names(error, own) is error
    assert str(in_option_names(InputError("is wrong", column="group", value=1), own)).startswith(
        "--group: is"
    )


def test_every_option_named_is_one() -> None:
    known = getattr(command_line(), "commands", {})
    every = {option for name in known for option in options_of([name]).values()}
    named = {part for option in OPTIONS.values() for part in option.split() if part.startswith("--")}
    assert named <= every


def test_clicks_is_still_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        commands.json_of(capsys, "simulate", "german", option, 50, "--out", tmp_path / "clicks.parquet")
        for option in ("--clicks", "--clicked-impressions")
    ]
    assert found[0] == found[1]
    log = found[0]["log"]
    assert log["impressions"] - log["impressions_without_click"] == 50
    _, out, _ = commands.result_of(capsys, "simulate", "--help")
    assert "--clicked-impressions" in out
    assert "--clicks " not in out
