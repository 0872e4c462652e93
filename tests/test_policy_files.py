from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import fultr
from fultr import FultrError, InputError, WriteError
from fultr.training import policy_files
from fultr.training.policy_files import PolicyFile, read_policy_file, write_policy_file
from tests.mutations import (
    DIGEST_AT,
    DIGEST_END,
    assembled,
    assembled_from,
    mutations,
    parts,
    single_byte_changes,
    split,
)

TENSORS: dict[str, np.ndarray] = {
    "weights": np.array([[0.1, -2.0], [3e38, 0.0]], dtype=np.float32),
    "scale": np.array([1e-300, np.pi]),
    "steps": np.array(7, dtype=np.int64),
    "none": np.empty((0, 3)),
}
CONTENT: dict[str, Any] = {
    "model": "mlp",
    "features": ["âge", 'a "quoted" \\ name', "\n\x00"],
    "position_bias": {"values": [1.0, 0.1 + 0.2, 5e-324], "beyond": None},
    "seed": 2**128,
    "group_blind": True,
}
OTHER: dict[str, Any] = {"model": "linear", "noise": {"eps_plus": 1.0, "eps_minus": -0.0}, "groups": [[]]}
DESCRIPTION = '"content":{},"format":"fultr policy","format_version":1,"fultr_version":"0.1"}'
MALFORMED = "has the right checksum, but is no well-formed policy"

NAMES = st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda name: name != "__metadata__")
VALUES = st.one_of(
    *(
        arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
        for dtype in ("<f4", "<f8", "<i8", ">f4", ">f8", ">i8")
    )
)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=25,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy_file(tmp_path / "policy.safetensors", TENSORS, CONTENT)


def as_bits(tensors: dict[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """What two sets of tensors must have in common; NaN equals NaN."""
    native = {name: values.astype(values.dtype.newbyteorder("=")) for name, values in tensors.items()}
    return {name: (values.dtype.name, values.shape, values.tobytes()) for name, values in native.items()}


def read_bytes(folder: Path, data: bytes) -> PolicyFile:
    path = folder / "changed"
    path.write_bytes(data)
    return read_policy_file(path)


def refusal(folder: Path, data: bytes) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(InputError) as caught:
        read_bytes(folder, data)
    assert caught.value.file == str(folder / "changed")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(folder)) + 200
    return str(caught.value)


# --- what is written comes back ---


@pytest.mark.slow
@settings(max_examples=300)
@given(tensors=st.dictionaries(NAMES, VALUES, max_size=5), content=st.dictionaries(NAMES, PLAIN, max_size=5))
def test_what_is_written_comes_back(folder: Path, tensors: dict[str, np.ndarray], content: Any) -> None:
    path = write_policy_file(folder / "random", tensors, content)
    found = read_policy_file(path)
    assert as_bits(found.tensors) == as_bits(tensors)
    assert json.dumps(found.content, sort_keys=True) == json.dumps(content, sort_keys=True)
    assert found.fultr_version == fultr.__version__


def test_other_tools_open_it(policy: Path) -> None:
    assert as_bits(safetensors.numpy.load_file(policy)) == as_bits(TENSORS)
    with safetensors.safe_open(policy, framework="np") as opened:
        description = json.loads(opened.metadata()["fultr"])
    data = policy.read_bytes()
    zeroed = data[:DIGEST_AT] + b"0" * 64 + data[DIGEST_END:]
    assert description == {
        "sha256": hashlib.sha256(zeroed).hexdigest(),
        "format": "fultr policy",
        "format_version": 1,
        "fultr_version": fultr.__version__,
        "content": CONTENT,
    }


def test_a_file_made_by_hand_is_read(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0], dtype="<f8").tobytes() + np.array([3], dtype="<i8").tobytes()
    tensors = (
        ',"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}'
        ',"n":{"dtype":"I64","shape":[],"data_offsets":[16,24]}'
    )
    description = DESCRIPTION.replace("{}", '{"é":[0.1]}', 1)
    found = read_bytes(tmp_path, assembled_from(description, tensors, values))
    assert as_bits(found.tensors) == as_bits({"w": np.array([1.5, -2.0]), "n": np.array(3)})
    assert found.content == {"é": [0.1]}
    assert found.fultr_version == "0.1"


def test_tensors_of_any_layout_are_written_by_value(tmp_path: Path) -> None:
    grid = np.arange(24.0).reshape(4, 6)
    layouts = {"turned": grid.T, "strided": grid[::-2, 1::3], "column": np.asfortranarray(grid)}
    before = as_bits(layouts)
    found = read_policy_file(write_policy_file(tmp_path / "p", layouts, {})).tensors
    assert as_bits(found) == before == as_bits(layouts)


def test_what_is_read_can_be_changed_without_the_file(policy: Path) -> None:
    found = read_policy_file(policy)
    found.tensors["weights"][:] = 0
    assert as_bits(read_policy_file(policy).tensors) == as_bits(TENSORS)


def test_the_same_policy_gives_the_same_bytes(tmp_path: Path) -> None:
    contents = [CONTENT, dict(reversed(CONTENT.items()))] * 10
    written = {
        write_policy_file(
            tmp_path / f"{number}", dict(reversed(TENSORS.items())) if number % 3 else TENSORS, content
        ).read_bytes()
        for number, content in enumerate(contents)
    }
    assert len(written) == 1


def test_other_processes_write_the_same_bytes(policy: Path, tmp_path: Path) -> None:
    """The order of names in Rust is random in each process, as Python's hashes are."""
    code = (
        "import sys; from fultr.training.policy_files import *;"
        "found = read_policy_file(sys.argv[1]); write_policy_file(sys.argv[2], found.tensors, found.content)"
    )
    subprocess.run([sys.executable, "-c", code, policy, tmp_path / "again"], check=True)
    assert (tmp_path / "again").read_bytes() == policy.read_bytes()


# --- damage ---


def test_every_changed_byte_is_noticed(policy: Path, tmp_path: Path) -> None:
    data = policy.read_bytes()
    refused = [refusal(tmp_path, changed) for changed in single_byte_changes(data)]
    assert len(refused) == 5 * len(data)


def test_every_truncation_is_noticed(policy: Path, tmp_path: Path) -> None:
    data = policy.read_bytes()
    for length in range(len(data)):
        assert refusal(tmp_path, data[:length])


@pytest.mark.parametrize("more", [b"\x00", b" ", b"{}", b"\n", bytes(4096)])
def test_appended_bytes_are_noticed(policy: Path, tmp_path: Path, more: bytes) -> None:
    assert "damaged" in refusal(tmp_path, policy.read_bytes() + more)


@pytest.mark.slow
def test_hostile_files_are_refused_or_well_formed(policy: Path, tmp_path: Path) -> None:
    other = write_policy_file(tmp_path / "other", {"weights": np.arange(5.0), "b": np.ones(1)}, OTHER)
    files = [policy.read_bytes(), other.read_bytes()]
    outcomes: Counter[str] = Counter()
    for seed in range(2):
        for mutation in mutations(files[seed], files[1 - seed], count=6_000, seed=seed):
            try:
                found = read_bytes(tmp_path, mutation.data)
            except InputError as error:
                known = (MALFORMED, "damaged", "safetensors file", "not a policy", "newer fultr", "is empty")
                outcomes[next(part for part in known if part in str(error))] += 1
                continue
            assert mutation.resealed or mutation.data in files, mutation.kind
            outcomes[f"loaded, {mutation.kind}"] += 1
            again = read_policy_file(write_policy_file(tmp_path / "again", found.tensors, found.content))
            assert as_bits(again.tensors) == as_bits(found.tensors)
            assert again.content == found.content
    print(f"12,000 hostile files: {dict(outcomes)}")
    assert outcomes[MALFORMED] > 4_000  # the parser behind the checksum was reached
    assert outcomes["loaded, edited description"] > 100
    assert outcomes["loaded, edited tensors"] > 20


# --- files that are something else ---


def test_what_is_no_policy_is_named(tmp_path: Path) -> None:
    for name, problem in (("nothing", "no such file"), ("empty", "is empty"), (".", "is a folder")):
        (tmp_path / "empty").touch()
        with pytest.raises(InputError, match=problem):
            read_policy_file(tmp_path / name)
    foreign = safetensors.numpy.save(TENSORS, {"format": "pt"})
    assert "is a safetensors file, but not a policy" in refusal(tmp_path, foreign)
    for junk in (b"x", b"PK\x03\x04" * 50, b"{}", b"\x80\x04\x95" * 100, bytes(500), b'{"model": "mlp"}' * 9):
        assert "is no safetensors file" in refusal(tmp_path, junk)
    checkpoint = DESCRIPTION.replace("fultr policy", "fultr checkpoint")
    assert "was saved by fultr, but is not a policy" in refusal(tmp_path, assembled_from(checkpoint))


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        read_policy_file(tmp_path / ("x" * 5000))
    (tmp_path / "p").write_bytes(b"content")

    def failing(*_: object, **__: object) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(InputError, match="cannot be read: Input/output error"):
        read_policy_file(tmp_path / "p")


def test_a_newer_format_is_refused_before_anything_else_about_it(tmp_path: Path) -> None:
    newer = '"format":"fultr policy","format_version":2,"fultr_version":"9.0","something":"else"}'
    line = refusal(tmp_path, assembled_from(newer, ',"w":{"dtype":"F128"}'))
    assert line.endswith("is of a format newer than 1, the last known here; install a newer fultr (got 2)")


@pytest.mark.parametrize("version", ["0", "-1", "1.0", "true", "null", '"1"', "[1]", "1" + "0" * 5000])
def test_versions_that_never_were_are_refused(tmp_path: Path, version: str) -> None:
    odd = DESCRIPTION.replace('"format_version":1', f'"format_version":{version}')
    assert MALFORMED in refusal(tmp_path, assembled_from(odd))


# --- files made to mislead ---


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "null",
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1e999}',
        '{"a":1,"a":1}',
        '{"a":{"b":1,"c":2,"b":3}}',
        '{"a":"\\ud800"}',
        '{"\\udfff":1}',
        '{"a":1' + "0" * 400 + "}",
        '{"a":1' + "0" * 5000 + "}",
        '{"a":' + "[" * 65 + "]" * 65 + "}",
        '{"a":' + "[" * 200_000 + "]" * 200_000 + "}",
        '{"a":' * 200_000,
        "{",
        "",
    ],
    ids=lambda content: content[:20],
)
def test_content_that_is_not_plain_is_refused(tmp_path: Path, content: str) -> None:
    assert MALFORMED in refusal(tmp_path, assembled_from(DESCRIPTION.replace("{}", content, 1)))


@pytest.mark.parametrize(
    "description",
    [
        DESCRIPTION.replace("}", ',"more":1}', 2),
        DESCRIPTION[:-1] + ',"more":1}',
        DESCRIPTION[:-1] + ',"sha256":""}',
        DESCRIPTION[:-1] + ',"format":"fultr policy"}',
        DESCRIPTION.replace('"content":{},', ""),
        DESCRIPTION.replace('"0.1"', "1"),
        DESCRIPTION.replace('"0.1"', '"\\ud800"'),
        DESCRIPTION + "}",
        DESCRIPTION[:-1],
    ],
)
def test_descriptions_with_other_fields_are_refused(tmp_path: Path, description: str) -> None:
    assert MALFORMED in refusal(tmp_path, assembled_from(description))


def tensor(dtype: str = "F32", shape: str = "[1]", offsets: str = "[0,4]", name: str = "w") -> str:
    return f',"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


@pytest.mark.parametrize(
    ("tensors", "values"),
    [
        (tensor("F16", offsets="[0,2]"), bytes(2)),
        (tensor("BF16", offsets="[0,2]"), bytes(2)),
        (tensor("I32"), bytes(4)),
        (tensor("BOOL", offsets="[0,1]"), bytes(1)),
        (tensor("U64", offsets="[0,8]"), bytes(8)),
        (tensor("C64", offsets="[0,8]"), bytes(8)),
        (tensor("F4", "[2]", "[0,1]"), bytes(1)),
        (tensor("F128"), bytes(4)),
        (tensor(shape="[2]"), bytes(4)),
        (tensor(shape="[-1]"), bytes(4)),
        (tensor(shape="[1.0]"), bytes(4)),
        (tensor(shape="[4294967296,4294967296]", offsets="[0,0]"), b""),
        (tensor(shape=f"[{2**64 - 1},2]"), bytes(4)),
        (tensor(shape=f"[0,{2**63}]", offsets="[0,0]"), b""),
        (tensor(shape=f"[0,{2**62},{2**62}]", offsets="[0,0]"), b""),
        (tensor(shape=str([1] * 65)), bytes(4)),
        (tensor(shape=f"[{2**62 - 1}]", offsets=f"[0,{2**64 - 4}]"), bytes(4)),
        (tensor(offsets="[4,0]"), bytes(4)),
        (tensor(offsets="[4,8]"), bytes(8)),
        (tensor(offsets="[0,4,8]"), bytes(4)),
        (tensor(offsets="[]"), bytes(4)),
        (tensor(), bytes(3)),
        (tensor(), bytes(5)),
        ("", bytes(1)),
        (tensor() + tensor(name="v"), bytes(4)),
        (tensor() + tensor(), bytes(4)),
        (tensor() + tensor(dtype="I64", offsets="[0,8]"), bytes(8)),
        (tensor(name="__metadata__"), bytes(4)),
        (tensor(name="\\ud800"), bytes(4)),
        (',"w":' + "[" * 100_000, b""),
        (',"w":{"dtype":"F32"}', b""),
        (',"w":null', b""),
        ("}", b""),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path: Path, tensors: str, values: bytes) -> None:
    assert MALFORMED in refusal(tmp_path, assembled_from(DESCRIPTION, tensors, values))


def test_the_cases_above_are_refused_for_what_is_wrong_with_them(tmp_path: Path) -> None:
    assert not read_bytes(tmp_path, assembled_from(DESCRIPTION)).tensors
    assert read_bytes(tmp_path, assembled_from(DESCRIPTION, tensor(), bytes(4))).tensors.keys() == {"w"}
    deep = DESCRIPTION.replace("{}", '{"a":' + "[" * 64 + "]" * 64 + "}", 1)
    assert read_bytes(tmp_path, assembled_from(deep)).content.keys() == {"a"}


def test_headers_of_other_shapes_are_refused(policy: Path, tmp_path: Path) -> None:
    header, values = split(policy.read_bytes())
    text = header.decode()
    for changed in (
        text.replace('"},"', '","fultr":"{}"},"', 1),
        text.replace('"},"', '"},"__metadata__":{},"', 1),
        text.rstrip()[:-1],
        text.rstrip() + "\x00",
        text + "{}",
    ):
        assert changed != text
        assert MALFORMED in refusal(tmp_path, assembled(changed.encode(), values))
    assert MALFORMED in refusal(tmp_path, assembled(header.rstrip() + b"\xff\xfe", values))


def test_absurd_lengths_are_refused_before_anything_is_read(policy: Path, tmp_path: Path) -> None:
    data = policy.read_bytes()
    for length in (0, 1, DIGEST_END - 9, len(data) - 7, 1 << 40, 1 << 63, (1 << 64) - 1):
        assert "damaged" in refusal(tmp_path, length.to_bytes(8, "little") + data[8:])
    huge = tmp_path / "huge"
    huge.write_bytes(data)
    os.truncate(huge, policy_files.LARGEST_FILE + 1)  # takes no room on the disk
    with pytest.raises(InputError, match=r"larger than a policy can be, which is 4 GB \(got 4294967297\)"):
        read_policy_file(huge)


def test_a_header_beyond_the_limit_is_refused_whatever_its_checksum(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = len(split(policy.read_bytes())[0])
    monkeypatch.setattr(policy_files, "LARGEST_HEADER", length)
    assert read_policy_file(policy).content == CONTENT
    monkeypatch.setattr(policy_files, "LARGEST_HEADER", length - 1)
    with pytest.raises(InputError, match="damaged"):
        read_policy_file(policy)


def test_a_file_that_is_changed_while_it_is_read_is_refused(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum is taken twice; what comes back is the bytes of the second time."""
    data, real = bytearray(policy.read_bytes()), policy_files._digest

    def digest_then_change(*arguments: Any) -> bytes:
        digest = real(*arguments)
        data[-1] ^= 1
        policy.write_bytes(data)
        return digest

    monkeypatch.setattr(policy_files, "_digest", digest_then_change)
    with pytest.raises(InputError, match="damaged"):
        read_policy_file(policy)


def test_too_little_memory_is_named(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(policy_files, "load", failing)
    with pytest.raises(InputError, match="does not fit into memory"):
        read_policy_file(policy)


# --- what cannot be written ---


def cyclic() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


@pytest.mark.parametrize(
    ("content", "column", "problem"),
    [
        ({"a": float("nan")}, "content.a", "must be finite"),
        ({"a": {"b": [1.0, float("inf")]}}, "content.a.b.1", "must be finite"),
        ({"a": np.float64("-inf")}, "content.a", "must be finite"),
        ({"a": (1, 2)}, "content.a", "as JSON has them"),
        ({"a": np.int64(1)}, "content.a", "as JSON has them"),
        ({"a": np.ones(2)}, "content.a", "as JSON has them"),
        ({"a": b"bytes"}, "content.a", "as JSON has them"),
        ({"a": {1: 2}}, "content.a", "no text"),
        ({None: 2}, "content", "no text"),
        ({"\ud800": 2}, "content", "no text"),
        ({"a": "\udfff"}, "content.a", "UTF-8"),
        ({"a": 10**5000}, "content.a", "bits"),
        ({"a": cyclic()}, "content.a" + ".0" * 64, "nested"),
        ([("a", 1)], "content", "must be a mapping"),
    ],
)
def test_content_that_would_not_come_back_is_refused(
    tmp_path: Path, content: Any, column: str, problem: str
) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        write_policy_file(tmp_path / "p", TENSORS, content)
    assert caught.value.column == column
    assert not list(tmp_path.iterdir())


def test_the_deepest_content_that_is_written_is_read(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(63):
        deep = [deep]
    content = {"a": deep, "b": 2**1024 - 1, "c": -(2**1024) + 1}
    assert read_policy_file(write_policy_file(tmp_path / "p", {}, content)).content == content
    with pytest.raises(InputError, match="nested"):
        write_policy_file(tmp_path / "p", {}, {"a": [deep]})


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": np.ones(2, dtype=np.float16)},
        {"a": np.ones(2, dtype=np.int32)},
        {"a": np.ones(2, dtype=np.bool_)},
        {"a": np.array(["text"])},
        {"a": np.array([None])},
        {"a": np.longdouble(1).reshape(1)},
        {"a": [1.0, 2.0]},
        {"a": 1.0},
        {"__metadata__": np.ones(2)},
        {"\ud800": np.ones(2)},
        {1: np.ones(2)},
    ],
)
def test_tensors_that_cannot_be_written_are_refused(tmp_path: Path, tensors: Any) -> None:
    with pytest.raises(InputError, match="column 'tensors'"):
        write_policy_file(tmp_path / "p", tensors, CONTENT)
    assert not list(tmp_path.iterdir())


def test_policies_beyond_the_limits_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="16 MB of names and description, and 4 GB in all"):
        write_policy_file(tmp_path / "p", {}, {"a": "x" * (16 << 20)})
    with pytest.raises(InputError, match="too large for a policy"):  # beyond the limit of the library, too
        write_policy_file(tmp_path / "p", {}, {"a": "x" * (101 << 20)})
    monkeypatch.setattr(policy_files, "LARGEST_FILE", 1000)
    with pytest.raises(InputError, match="too large for a policy"):
        write_policy_file(tmp_path / "p", {"w": np.ones(1000)}, {})
    assert not list(tmp_path.iterdir())


def test_a_library_that_lays_out_files_in_another_way_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_order(tensors: dict[str, Any], metadata: dict[str, str]) -> bytes:
        return safetensors.numpy.save(tensors, {"another key": "", **metadata}).replace(b'{"__', b'{ "__')

    monkeypatch.setattr(policy_files, "save", other_order)
    with pytest.raises(FultrError, match="lays out its files anew"):
        write_policy_file(tmp_path / "p", TENSORS, CONTENT)
    assert not list(tmp_path.iterdir())


def test_sources_that_are_not_installed_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert read_policy_file(write_policy_file(tmp_path / "p", {}, {})).fultr_version == "unknown"


# --- writing that fails half way ---


def test_a_failing_replacement_keeps_the_old_file(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    before = policy.read_bytes()
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(WriteError, match="No space left"):
        write_policy_file(policy, {}, OTHER)
    assert policy.read_bytes() == before
    assert list(policy.parent.iterdir()) == [policy]


def test_a_disk_that_takes_only_a_part_keeps_the_old_file(policy: Path) -> None:
    resource = pytest.importorskip("resource")
    before, limits = policy.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(WriteError, match="File too large"):
            write_policy_file(policy, {"w": np.ones(1 << 18)}, OTHER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert policy.read_bytes() == before
    assert list(policy.parent.iterdir()) == [policy]


def test_a_process_killed_while_it_writes_leaves_the_old_file(policy: Path) -> None:
    pytest.importorskip("resource")
    # the kernel kills whoever writes more than the limit, unless the signal is ignored as Python does
    code = (
        "import resource, signal, sys; import numpy as np;"
        "from fultr.training.policy_files import write_policy_file;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL);"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20));"
        "write_policy_file(sys.argv[1], {'w': np.ones(1 << 18)}, {})"
    )
    before = policy.read_bytes()
    done = subprocess.run([sys.executable, "-c", code, policy], check=False, capture_output=True)
    assert done.returncode == -signal.SIGXFSZ, done.stderr
    half = [path.stat().st_size for path in policy.parent.iterdir() if path != policy]
    assert half == [1 << 20]
    assert policy.read_bytes() == before
    assert read_policy_file(policy).content == CONTENT


@pytest.mark.parametrize("path", ["missing/policy", "."])
def test_impossible_targets_are_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_policy_file(tmp_path / path, TENSORS, CONTENT)


# --- the mutations themselves ---


def test_a_file_put_together_again_is_the_same(policy: Path) -> None:
    data = policy.read_bytes()
    padded = len(split(data)[0]) - len(split(data)[0].rstrip())
    description, tensors, values = parts(data)
    again = assembled_from(description, tensors, values)
    assert assembled(split(again)[0] + b" " * padded, values) == data


def test_mutations_are_the_same_for_the_same_seed(policy: Path) -> None:
    data = policy.read_bytes()
    first, second, third = (list(mutations(data, data, count=90, seed=seed)) for seed in (1, 1, 2))
    assert first == second != third
    assert len(first) == 90
    assert not any(mutation.data == data for mutation in first)
