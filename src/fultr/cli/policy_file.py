"""Where a saved policy is: the file itself, or the folder of the run that trained it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fultr.errors import InputError

POLICY_FILE = "policy.safetensors"
"""The name of the policy in the folder of a training run."""


def policy_file(path: Path) -> Path:
    """Return the file of a policy that is named by itself or by its folder."""
    with suppress(OSError):  # of a name that is too long, which reading says better
        if path.is_dir():
            file = path / POLICY_FILE
            if not file.exists():
                raise InputError(f"is a folder without a {POLICY_FILE}; name a saved policy", file=path)
            return file
    return path
