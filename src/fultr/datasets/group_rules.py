"""Groups of items by a rule about one of their features."""

from __future__ import annotations

import difflib
import operator
import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fultr.data.dataset import RankingDataset
from fultr.errors import InputError

RULE = re.compile(
    r"\s*feature\s+(?P<feature>[^\s<>][^<>]*?)\s*(?P<comparison><=|>=|<|>)\s*(?P<quantile>quantile\s+)?"
    r"(?P<value>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)\s*",
    re.ASCII,
)
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}


@dataclass(frozen=True)
class GroupRule:
    """A rule such as `feature 25 > quantile 0.8` or `feature age > 3.5`.

    Parameters
    ----------
    feature
        The name of the feature.
    comparison
        One of >, >=, < and <=.
    value
        What it is compared with: a number, or the share of the items that lie at or below the number.
    is_quantile
        Whether it is a share.
    """

    feature: str
    comparison: str
    value: float
    is_quantile: bool

    @classmethod
    def parse(cls, text: str) -> GroupRule:
        """Read a rule."""
        match = RULE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            problem = "a rule for groups reads 'feature NAME > NUMBER' or 'feature NAME > quantile SHARE'"
            raise InputError(f"{problem}, with >, >=, < or <=", value=text)
        rule = cls(match["feature"], match["comparison"], float(match["value"]), bool(match["quantile"]))
        if not np.isfinite(rule.value) or (rule.is_quantile and not 0 < rule.value < 1):
            what = "a quantile lies between 0 and 1" if rule.is_quantile else "the number must be finite"
            raise InputError(f"{what} in a rule for groups", value=text)
        return rule

    @property
    def group_names(self) -> tuple[str, str]:
        """The groups of items for which the rule holds, and of those for which it does not."""
        than = f"{'quantile ' if self.is_quantile else ''}{self.value:g}"
        opposite = OPPOSITE[self.comparison]
        return f"{self.feature} {self.comparison} {than}", f"{self.feature} {opposite} {than}"

    def holds(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return for which values of the feature the rule holds."""
        # a quantile is one of the values; a number is rounded as the values were
        cut = np.quantile(values, self.value, method="inverted_cdf") if self.is_quantile else self.value
        return np.asarray(COMPARISONS[self.comparison](values, np.float32(cut)))


def group_by(data: RankingDataset, rule: str) -> RankingDataset:
    """Return the same lists with groups by a rule about a feature, in place of any others.

    The feature counts as derived from the group: a group-blind scorer does not see it.

    Parameters
    ----------
    data
        The lists.
    rule
        `feature NAME > NUMBER` or `feature NAME > quantile SHARE`; also with >=, < and <=. A quantile is that
        of all items of the data.

    Examples
    --------
    >>> data = RankingDataset([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]], [0, 3])
    >>> group_by(data, "feature 2 > quantile 0.6").describe()["groups"]["2 > quantile 0.6"]["rows"]
    1
    """
    parsed = GroupRule.parse(rule)
    if parsed.feature not in data.feature_names:
        meant = difflib.get_close_matches(parsed.feature, data.feature_names, n=3)
        hint = f"; similar names: {', '.join(meant)}" if meant else ""
        raise InputError(f"there is no such feature for groups{hint}", column=parsed.feature, value=rule)
    column = data.feature_names.index(parsed.feature)
    holds = parsed.holds(data.features[:, column]) if data.rows else np.empty(0, dtype=np.bool_)
    if holds.all() or not holds.any():
        which = "all" if holds.all() else "none"
        problem = f"the rule holds for {which} of the {data.rows:,} items, so that there is one group only"
        raise InputError(problem, column=parsed.feature, value=rule)
    return replace(data, group=np.where(holds, 0, 1), group_names=parsed.group_names, group_columns=(column,))
