"""The errors fultr raises for what its user did, each able to say where."""

from __future__ import annotations

from pathlib import Path


class FultrError(Exception):
    """Base of every error that fultr raises on purpose."""


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
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
        value: object = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else str(file)
        self.row = None if row is None else int(row)
        self.column = column
        self.value = value
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        place = [
            *([self.file] if self.file is not None else []),
            *([f"row {self.row}"] if self.row is not None else []),
            *([f"column '{self.column}'"] if self.column is not None else []),
        ]
        sentence = ", ".join(place) + (": " if place else "") + self.problem
        if self.value is not None:
            sentence += f" (got {_short(self.value)})"
        return " ".join(sentence.split())

    def located(self, file: str | Path, row: int | None = None) -> InputError:
        """Return the same error with the file, and if given the row, that its input came from."""
        return InputError(
            self.problem,
            file=file,
            row=self.row if row is None else row,
            column=self.column,
            value=self.value,
        )


class WriteError(FultrError):
    """A result could not be written (a full disk, say); what was there before is untouched."""


def _short(value: object, longest: int = 60) -> str:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= longest else text[: longest - 3] + "..."
