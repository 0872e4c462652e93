"""The public names of the package with their signatures, as text: `python -m tests.public_api` writes it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

FILE = Path(__file__).with_suffix(".txt")
MODULES = ("fultr", "fultr.baselines", "fultr.datasets", "fultr.estimators")
"""What users import from; other modules may change without notice."""


def public_api() -> str:
    """Return a line for each public name, and for each public method of a class."""
    return "".join(f"{line}\n" for name in MODULES for line in _lines(importlib.import_module(name)))


def _lines(module: ModuleType) -> Iterator[str]:
    for name in module.__all__:
        value = getattr(module, name)
        path = f"{module.__name__}.{name}"
        if inspect.isclass(value):
            bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
            yield f"{path}{_signature(value)}" + (f" of {bases}" if bases else "")
            yield from (f"    {line}" for line in _members(value))
        elif callable(value):
            yield f"{path}{_signature(value)}"
        elif not inspect.ismodule(value):
            yield f"{path}: {type(value).__name__}"


def _members(kind: type) -> Iterator[str]:
    """Yield public members that are defined in this package, inherited ones included."""
    for name in sorted(dir(kind)):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("fultr"):
            continue
        value = inspect.getattr_static(kind, name)
        if isinstance(value, (classmethod, staticmethod)):
            yield f"{name}{_signature(value.__func__)}"
        elif inspect.isfunction(value):
            yield f"{name}{_signature(value)}"
        else:
            yield name


def _signature(value: object) -> str:
    """Return parameters and what is returned; defaults that are objects, by their class alone."""
    try:
        found = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    plain = (bool, int, float, str, tuple, type(None))
    parameters = [
        one
        if one.default is one.empty or isinstance(one.default, plain)
        else one.replace(default=type(one.default))
        for one in found.parameters.values()
    ]
    return str(found.replace(parameters=parameters))


if __name__ == "__main__":
    FILE.write_text(public_api(), encoding="utf-8")
