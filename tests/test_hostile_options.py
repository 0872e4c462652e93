"""Numbers, names and streams that nobody means end in one clear line."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from fultr import InputError, datasets, write_dataset
from fultr.audits import read_audit
from fultr.audits.files import _table
from fultr.cli.main import app, run
from fultr.cli.output import print_facts, print_findings, print_table, results, say
from fultr.clicks import read_bias, read_position_bias
from fultr.errors import visible
from fultr.experiments.runs import Archive
from fultr.policy import MLPScorer
from fultr.training.run_folder import results_of_run
from tests.commands import refusal, result_of

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def options_of(kind: type) -> list[tuple[str, str]]:
    """Return all commands with their options of a type."""
    return [
        (name, option.opts[0])
        for name, command in COMMANDS.items()
        for option in command.params
        if option.opts[0].startswith("--") and getattr(option, "type_descriptor", None)
        if option.type_descriptor.annotation is kind
    ]


FLOATS, WHOLES = options_of(float), options_of(int)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "lists.parquet"
    write_dataset(datasets.studios(), path)
    return path


def arguments_of(command: str, log: Path, folder: Path) -> list[str]:
    """Return a command with as many arguments as it needs, and an output."""
    needed = [one for one in COMMANDS[command].params if one.required]
    given: list[str] = []
    for one in needed:
        value = str(folder / "out.json") if "out" in one.name or "train" in one.name else str(log)
        given += [one.opts[0], value] if one.opts[0].startswith("--") else [value]
    return [command, *given]


def test_there_are_options_to_check() -> None:
    assert len(FLOATS) > 20
    assert len(WHOLES) > 30


@pytest.mark.parametrize(("command", "option"), FLOATS)
def test_no_option_takes_what_is_no_finite_number(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path, command: str, option: str
) -> None:
    for value in ("nan", "inf"):
        line = refusal(capsys, *arguments_of(command, log, tmp_path), f"{option}={value}")
        assert option in line


@pytest.mark.parametrize(("command", "option"), WHOLES)
def test_no_option_takes_whole_numbers_of_30_digits(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path, command: str, option: str
) -> None:
    line = refusal(capsys, *arguments_of(command, log, tmp_path), f"{option}={'9' * 30}")
    assert option in line


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--l2", "nan"),
        ("--l2", "0.1,inf"),
        ("--lambdas", "nan"),
        ("--lambdas", "0,-inf"),
        ("--seeds", "9" * 30),
        ("--hidden", "9" * 30),
        ("--eps-minus", "nan"),
    ],
)
def test_no_list_of_numbers_holds_what_is_no_finite_number(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path, option: str, value: str
) -> None:
    line = refusal(capsys, "sweep", log, "--out", tmp_path / "run", f"{option}={value}")
    assert f"{option} must be a" in line


def test_a_network_that_no_memory_holds_is_refused(
    capsys: pytest.CaptureFixture[str], log: Path, tmp_path: Path
) -> None:
    arguments = ("--eta", 1, "--model", "mlp", "--hidden", 10**9, "--out", tmp_path / "run")
    code, _, said = result_of(capsys, "train", log, *arguments)
    line = said.splitlines()[-1]
    assert code == 2, said
    assert "the network would have" in line
    with pytest.raises(InputError, match="column 'hidden'.*more than 100,000,000"):
        MLPScorer(3, (10**5, 10**5))


@pytest.mark.parametrize(
    "content",
    [
        '{"values": [1, Infinity]}',
        '{"values": [1, NaN]}',
        '{"values": [1, 1e999]}',
        '{"values": [1, 1' + "0" * 400 + "]}",
        '{"values": [1, 1' + "0" * 5000 + "]}",
        '{"curves": 1, "column": 2}',
        '{"positions": [1], "values": [1], "level": [], "queries": {}}',
        "[" * 100_000,
        "null",
        '{"values": {"a": 1}}',
    ],
)
def test_hostile_numbers_in_json_files_are_refused_with_the_files_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    for read in (read_bias, read_position_bias, read_audit):
        with pytest.raises(InputError, match=r"file\.json") as refused:
            read(path)
        assert len(str(refused.value)) < 600


@pytest.mark.parametrize("config", ['{"a": Infinity}', '{"a": 1' + "0" * 400 + "}", '{"a": ', "[]"])
def test_hostile_numbers_in_the_config_of_a_run_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str
) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        results_of_run(tmp_path, {"a": 1}, resume=True)
    assert "is damaged" in refusal(capsys, "report", tmp_path, "--out", tmp_path / "page.html")


@pytest.mark.parametrize(
    "content", ['{"format": 3, "rows": [', "", "[]", '{"rows": []}', '{"rows": [{}]}', '{"rows": [1]}']
)
def test_truncated_files_of_reproduce_are_refused_by_name(tmp_path: Path, content: str) -> None:
    class Known:
        name = "run.json"

    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError, match=r"run\.json"):
        Archive(tmp_path).read(Known())  # type: ignore[arg-type]


# --- names ---

HOSTILE = "\x1b[31mred\x1b]0;title\x07\u202edetrever\x9b\ud800 \r"
SHOWN = "\\x1b[31mred\\x1b]0;title\\x07\\u202edetrever\\x9b\\ud800 \\r"


def test_names_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = results()
    print_table(console, HOSTILE, [HOSTILE, HOSTILE], [[HOSTILE, HOSTILE]])
    print_facts(console, HOSTILE, [(HOSTILE, HOSTILE)])
    print_findings(console, [{"severity": "note", "sentence": HOSTILE}])
    console.print(HOSTILE)
    say(HOSTILE)
    error = str(InputError(HOSTILE, file=HOSTILE, column=HOSTILE, value=HOSTILE))
    captured = capsys.readouterr()
    for text in (captured.out, captured.err, error):
        assert SHOWN.removesuffix("\\r") in text
        assert not set("\x1b\x07\u202e\x9b\ud800\r") & set(text)
    captured.out.encode()


def test_names_of_all_languages_stay_as_they_are() -> None:
    for text in ("Zürich", "日本語", "עברית", "می‌خواهم", "👩‍🚀", "a\tb\nc", "naïve\xa0café"):
        assert visible(text) == text


def test_a_name_in_a_table_stays_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(results(), "title", ["name", "value"], [["a\nverdict pass", "1"]])
    assert "a\\nverdict pass" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_names_in_tables_of_an_audit_are_no_formulas(name: str) -> None:
    text = _table([{"group": name, "value": -1.5}])
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    in_a_line = name.replace("\r", "\\r")
    assert not set("\x1b\x07\u202e\x9b\ud800\r") & set(_table([{"group": HOSTILE}]))
    assert row == {"group": f"'{in_a_line}", "value": "-1.5"}  # numbers stay numbers


# --- streams ---


def test_a_full_standard_output_is_a_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fultr", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "fultr: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_internal_errors(closed: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -m fultr --version {closed}'],
        capture_output=True,
        text=True,
        check=False,
    )
    if closed == "2>&-":
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("fultr ")
    else:
        assert done.returncode == 2
        assert not done.stdout
    if closed == ">&-":
        assert done.stderr == ("fultr: standard output is closed; send it to /dev/null if it is not wanted\n")


def test_too_little_memory_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_memory(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 2 EiB")

    monkeypatch.setattr("fultr.cli.main.command_line", lambda: without_memory)
    assert run(["--version"]) == 1
    assert capsys.readouterr().err == "fultr: there is not enough memory for this: Unable to allocate 2 EiB\n"
