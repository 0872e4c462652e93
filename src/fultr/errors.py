"""The errors fultr raises for what its user did, each able to say where."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class FultrError(Exception):
    """Base of every error that fultr raises on purpose; a command that it ends has its exit code."""

    exit_code = 1


class InputError(FultrError, ValueError):
    """Data or an argument cannot be used; the message says where it is and what would be right.

    Parameters
    ----------
    problem
        What is wrong and what to do about it.
    file
        The file the input came from, if any.
    row
        The row of that input, counted from 1 as a person would (in text files: the line).
    column
        The column or field.
    value
        The offending value; a list or an array is shown in short.
    options
        Arguments that the problem names as {name}: that is `name=` in Python, and `--name` in the shell. A
        name that ends in () is that of a method in Python.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
        value: object = None,
        options: Sequence[str] = (),
    ) -> None:
        self._template = problem
        self.options = tuple(options)
        self.problem = self._naming(lambda name: name if name.endswith("()") else f"{name}=", between="")
        self.file = None if file is None else str(file)
        self.row = None if row is None else int(row)
        self.column = column
        self.value = value
        super().__init__(self._sentence(self.problem))

    def in_shell(self, names: Mapping[str, str] | None = None) -> str:
        """Return the message in the names of options; `names` has those that differ from the arguments."""

        def shown(name: str) -> str:
            argument = name.removesuffix("()")
            return (names or {}).get(argument, "--" + argument.replace("_", "-"))

        return self._sentence(self._naming(shown, between=" "))

    def _naming(self, shown: Callable[[str], str], between: str) -> str:
        """Return the problem with names of arguments as they are shown; `between` precedes their values."""
        problem = self._template
        for name in self.options:
            named = re.escape(f"{{{name}}}")
            problem = re.sub(rf"{named} (?=['\d])", shown(name) + between, problem)
            problem = re.sub(named, shown(name), problem)
        return problem

    def _sentence(self, problem: str) -> str:
        location = [
            *([self.file] if self.file is not None else []),
            *([f"row {self.row}"] if self.row is not None else []),
            *([f"column '{_cut(self.column, LONGEST_COLUMN)}'"] if self.column is not None else []),
        ]
        sentence = ", ".join(location) + (": " if location else "") + _cut(problem, LONGEST_PROBLEM)
        if self.value is not None:
            sentence += f" (got {_short(self.value)})"
        return visible(" ".join(sentence.split()))

    def located(self, file: str | Path, row: int | None = None) -> InputError:
        """Return the same error with the file, and if given the row, that its input came from."""
        return self.about(file, self.row if row is None else row, self.column)

    def of_option(self, option: str) -> InputError:
        """Return the same error about an option of a command."""
        return InputError(f"{option}: {self._template}", value=self.value, options=self.options)

    def adding(self, advice: str, *options: str) -> InputError:
        """Return the same error with something more to say, which may name arguments."""
        return InputError(
            self._template + advice,
            file=self.file,
            row=self.row,
            column=self.column,
            value=self.value,
            options=(*self.options, *options),
        )

    def about(self, file: str | Path | None, row: int | None, column: str | None) -> InputError:
        """Return the same error with another location."""
        return InputError(
            self._template, file=file, row=row, column=column, value=self.value, options=self.options
        )


class WriteError(FultrError):
    """A result could not be written (a full disk, say); what was there before is untouched."""


class FultrWarning(UserWarning):
    """What was asked for is done, but rests on too little."""


def visible(text: str) -> str:
    r"""Return text with what would steer a terminal, or cannot be encoded, as escapes such as \x1b."""
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


UNSEEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""Control characters but tabs and line ends, those that turn the direction of writing, lone surrogates."""


LONGEST_COLUMN = 120
"""Characters of the name of a column that an error shows."""

LONGEST_PROBLEM = 600
"""Characters of a problem that an error shows; lists of names may make it longer."""


def _cut(text: str, longest: int) -> str:
    """Return a text, or the start and the end of a long one."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def _short(value: object, longest: int = 60) -> str:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= longest else text[: longest - 3] + "..."
