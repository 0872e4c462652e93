"""How trees are grown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fultr.arguments import checked_number, names_of, whole_number
from fultr.errors import InputError

MOST_LEAVES = 1 << 16
"""What the number of a leaf has room for."""


@dataclass(frozen=True)
class TreeSettings:
    """How the trees of `FairRanker(model="trees")` and `"linear+trees"` are grown.

    Parameters
    ----------
    leaves
        The most leaves of a tree.
    rounds
        The most trees that are grown for utility; left-out clicks choose how many are kept.
    learning_rate
        What the values of the leaves of each tree are multiplied by.
    min_rows
        The fewest training rows in a leaf.
    column_share, row_share
        The share of features, and of training rows, drawn at random for each tree.
    monotone
        By the name of a feature, 1 if scores must not fall as it rises, -1 if they must not rise. It is for
        the most useful policy of trees alone, and that with offsets: training for fairness moves leaves.
    interactions
        Groups of features, by name: only those of one group may be split on along one branch. A feature in
        no group is alone.
    """

    leaves: int = 15
    rounds: int = 300
    learning_rate: float = 0.1
    min_rows: int = 50
    column_share: float = 1.0
    row_share: float = 1.0
    monotone: Mapping[str, int] | None = None
    interactions: Sequence[Sequence[str]] | None = None

    def __post_init__(self) -> None:
        leaves = whole_number(self.leaves, "leaves", least=2)
        if leaves > MOST_LEAVES:
            raise InputError(f"must be at most {MOST_LEAVES}", column="leaves", value=leaves)
        whole_number(self.rounds, "rounds", least=1)
        whole_number(self.min_rows, "min_rows", least=1)
        for name in ("learning_rate", "column_share", "row_share"):
            rule = "must be above 0 and at most 1"
            checked_number(getattr(self, name), name, rule, lambda got: 0 < got <= 1)
        if self.monotone is not None:
            self._check_monotone(self.monotone)
        if self.interactions is not None:
            groups = [list(names_of(group, "interactions")) for group in self.interactions]
            object.__setattr__(self, "interactions", groups)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        settings: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("learning_rate", "column_share", "row_share"):
            settings[name] = float(settings[name])
        for name in ("leaves", "rounds", "min_rows"):
            settings[name] = int(settings[name])
        return settings

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> TreeSettings:
        """Return the settings of plain values; unknown ones are refused."""
        names = {field.name for field in fields(cls)}
        if not isinstance(given, dict) or not set(given) <= names:
            raise InputError("must be settings of trees", column="trees", value=given)
        return cls(**given)

    def _check_monotone(self, given: Any) -> None:
        signs = given.values() if isinstance(given, Mapping) else [None]
        if any(isinstance(sign, bool) or sign not in (-1, 1) for sign in signs):
            problem = "must give 1 (rising) or -1 (falling) by the name of a feature"
            raise InputError(problem, column="monotone", value=given)
        object.__setattr__(self, "monotone", {str(name): int(sign) for name, sign in given.items()})

    def columns_of(
        self, names: Sequence[str], categorical: Sequence[int] = ()
    ) -> tuple[list[int] | None, list[list[int]] | None]:
        """Return the direction of each feature and groups of features, by their numbers.

        `names` are of the features that trees may split on; `categorical` are the numbers of those that hold
        categories, which have no direction.
        """
        number = {name: at for at, name in enumerate(names)}
        groups = self.interactions or ()
        for column, asked in (("monotone", [list(self.monotone or ())]), ("interactions", groups)):
            for name in (name for group in asked for name in group):
                if name not in number:
                    raise InputError("there is no such feature to split on", column=column, value=name)
        for name in self.monotone or ():
            if number[name] in categorical:
                raise InputError("holds categories, which have no order", column="monotone", value=name)
        directions = None if self.monotone is None else [self.monotone.get(name, 0) for name in names]
        if self.interactions is None:
            return directions, None
        grouped = {name for group in groups for name in group}
        single = [[number[name]] for name in names if name not in grouped]
        return directions, [[number[name] for name in group] for group in groups] + single
