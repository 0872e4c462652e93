"""What is known of each item's relevance, from labels or from clicks, summed over impressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from fultr.click_model import ClickNoise
from fultr.data import RankingDataset
from fultr.errors import InputError
from fultr.estimators.arrays import repeated_numbers, sums_by, total_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Values = TypeVar("Values", "Tensor", "NDArray[Any]", default="Tensor")
"""Tensors, through which gradients flow, or arrays: what is measured of a log alone needs no torch."""

FEW_GROUPS = 3
"""Up to so many groups, all disparities come from one product with a matrix of rows x groups^2."""


@dataclass(frozen=True, eq=False)
class Candidates(Generic[Values]):
    """The list and the group of each row: how values of items add up to values of lists and groups.

    Parameters
    ----------
    offsets
        Where each list starts, and the number of rows at the end.
    group
        The group of each row, from 0; -1 where it is unknown, and then the row is in no group.
    groups
        The number of groups.
    """

    offsets: Values
    group: Values
    groups: int

    @classmethod
    def of(cls, data: RankingDataset) -> Candidates[Tensor]:
        """Return the lists and groups of a dataset."""
        return candidates_in_arrays(data).to_torch()

    @property
    def lists(self) -> int:
        """Number of lists."""
        return int(self.offsets.shape[0]) - 1

    @property
    def rows(self) -> int:
        """Number of items over all lists."""
        return int(self.group.shape[0])

    @property
    def lengths(self) -> Values:
        """How many rows each list has."""
        lengths: Values = self.offsets[1:] - self.offsets[:-1]
        return lengths

    @cached_property
    def list_of_row(self) -> Values:
        """The list that each row belongs to."""
        return repeated_numbers(self.lengths, self.rows)

    @cached_property
    def cell_of_row(self) -> Values:
        """A number for the list and group of each row; rows of no group count as one group more."""
        # the remainder makes the last group of -1
        cell: Values = self.list_of_row * (self.groups + 1) + self.group % (self.groups + 1)
        return cell

    def sum_by_list(self, values: Values) -> Values:
        """Add up the rows of each list: (..., rows) to (..., lists)."""
        self.check(values)
        return sums_by(values, self.list_of_row, self.lists)

    def sum_by_group(self, values: Values) -> Values:
        """Add up the rows of each group of each list: (..., rows) to (..., lists, groups)."""
        self.check(values)
        shape = (*values.shape[:-1], self.lists, self.groups + 1)
        cells = sums_by(values, self.cell_of_row, self.lists * (self.groups + 1))
        return cells.reshape(shape)[..., : self.groups]

    def spread(self: Candidates[Tensor], of_groups: Tensor) -> Tensor:
        """Give each row what its group has: (..., lists, groups) to (..., rows), 0 for a row of no group."""
        import torch

        with_no_group = torch.nn.functional.pad(of_groups, (0, 1))
        return with_no_group.flatten(-2).index_select(-1, self.cell_of_row)

    def check(self, values: Values) -> None:
        """Refuse values of rows that are not as many as the rows."""
        if values.ndim < 1 or values.shape[-1] != self.rows:
            problem = f"must have one value for each of {self.rows} rows in its last dimension"
            raise InputError(problem, column="expected weights", value=tuple(values.shape))

    def rows_of(self: Candidates[Tensor], lists: Tensor) -> Tensor:
        """Return the rows of the given lists, one list after another."""
        import torch

        lengths = self.lengths[lists]
        before = lengths.cumsum(0) - lengths
        rows = int(lengths.sum())
        first = (self.offsets[lists] - before).repeat_interleave(lengths, output_size=rows)
        return first + torch.arange(rows, device=first.device)

    def __getitem__(self: Candidates[Tensor], lists: Tensor) -> Candidates[Tensor]:
        """Return some of the lists, in the order asked for; a list may come more than once."""
        return self.pick(lists, self.rows_of(lists))

    def pick(self: Candidates[Tensor], lists: Tensor, rows: Tensor) -> Candidates[Tensor]:
        """Return some of the lists, whose rows are known."""
        import torch

        offsets = torch.nn.functional.pad(self.lengths[lists].cumsum(0), (1, 0))
        return Candidates(offsets, self.group[rows], self.groups)

    def to(self: Candidates[Tensor], device: torch.device | str) -> Candidates[Tensor]:
        """Return the same on a device."""
        return Candidates(self.offsets.to(device), self.group.to(device), self.groups)

    def to_torch(self: Candidates[NDArray[Any]]) -> Candidates[Tensor]:
        """Return the same in tensors."""
        import torch

        return Candidates(torch.from_numpy(self.offsets), torch.from_numpy(self.group), self.groups)


def candidates_in_arrays(data: RankingDataset) -> Candidates[NDArray[Any]]:
    """Return the lists and groups of a dataset, in arrays."""
    return Candidates(data.offsets.astype(np.int64), data.group.astype(np.int64), len(data.group_names))


@dataclass(frozen=True, eq=False)
class Evidence(Generic[Values]):
    """What is known of each item's relevance, summed over the impressions of its list.

    Utility and disparity are linear in the clicks of an impression, so the sums hold all they need.

    Parameters
    ----------
    candidates
        The list and the group of each row.
    weight
        (rows,) The merit of each item: its relevance, or the sum over impressions of c / p.
    impressions
        (lists,) How often each list was shown, those without a click included: every mean divides by their
        sum. A list that was never shown takes no part in any mean.
    shown
        (rows,) How often each item was shown where it could be examined: E[weight] of an item whose every
        examination ends in a click. A clipped weight counts in part, as p times the weight. None where
        noise cannot be taken off: relevances have none, and from other weights it was taken off already.
    empties_dropped
        Whether impressions without a click are missing, so that every mean is known only up to a factor.
    unseen_group
        (rows,) The group of each item that nobody could see, and whose merit is unknown; -1 for all others.
        Such an item is in no group of `candidates`. None if there are none.
    """

    candidates: Candidates[Values]
    weight: Values
    impressions: Values
    shown: Values | None = None
    empties_dropped: bool = False
    unseen_group: Values | None = None

    def __post_init__(self) -> None:
        self.candidates.check(self.weight)
        if self.impressions.shape != (self.candidates.lists,):
            problem = f"must have one value for each of {self.candidates.lists} lists"
            raise InputError(problem, column="impressions", value=tuple(self.impressions.shape))
        if not self.total_impressions > 0:
            raise InputError("there are no impressions to estimate anything from", column="impressions")

    @cached_property
    def total_impressions(self) -> float:
        """What every mean divides by."""
        return total_of(self.impressions)

    @cached_property
    def disparity_slopes(self: Evidence[Tensor]) -> Tensor | None:
        """What a unit of exposure of each row adds to the sum over impressions of D_ij: (rows, groups^2).

        M_q(G_j) for D_ij and -M_q(G_j) for D_ji if the row of list q is in group i; 0 for other pairs. None
        for more than `FEW_GROUPS` groups, where it would take too much memory, and where there is no pair.
        """
        import torch

        candidates = self.candidates
        if not 2 <= candidates.groups <= FEW_GROUPS:
            return None
        merit = candidates.sum_by_group(self.weight)[candidates.list_of_row]
        own = candidates.group.unsqueeze(1) == torch.arange(candidates.groups, device=self.weight.device)
        products = own.unsqueeze(2) * merit.unsqueeze(1)
        return (products - products.transpose(1, 2)).flatten(1)

    def __getitem__(
        self: Evidence[Tensor], lists: slice | Sequence[int] | NDArray[np.int64] | Tensor
    ) -> Evidence[Tensor]:
        """Return some of the lists, in the order asked for; repeated lists are fine (a bootstrap)."""
        import torch

        numbers = torch.arange(self.candidates.lists, device=self.weight.device)
        chosen = numbers[lists if isinstance(lists, (slice, torch.Tensor)) else torch.as_tensor(lists)]
        rows = self.candidates.rows_of(chosen)
        picked = replace(
            self,
            candidates=self.candidates.pick(chosen, rows),
            weight=self.weight[rows],
            impressions=self.impressions[chosen],
            shown=None if self.shown is None else self.shown[rows],
            unseen_group=None if self.unseen_group is None else self.unseen_group[rows],
        )
        # slopes take longer to make than to pick; this is where a cached property keeps its value
        slopes = self.disparity_slopes
        picked.__dict__["disparity_slopes"] = None if slopes is None else slopes[rows]
        return picked

    def with_rows(self: Evidence[Tensor], kept: NDArray[np.bool_]) -> Evidence[Tensor]:
        """Return the lists without some of their rows; a list that keeps none is left out."""
        import torch

        rows = torch.from_numpy(np.flatnonzero(kept))
        lengths = torch.bincount(self.candidates.list_of_row[rows], minlength=self.candidates.lists)
        lists = lengths.nonzero().reshape(-1)
        offsets = torch.nn.functional.pad(lengths[lists].cumsum(0), (1, 0))
        return Evidence(
            candidates=Candidates(offsets, self.candidates.group[rows], self.candidates.groups),
            weight=self.weight[rows],
            impressions=self.impressions[lists],
            shown=None if self.shown is None else self.shown[rows],
            empties_dropped=self.empties_dropped,
            unseen_group=None if self.unseen_group is None else self.unseen_group[rows],
        )

    def to(
        self: Evidence[Tensor], dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Evidence[Tensor]:
        """Return the same in another floating type, on another device, or both."""
        target = self.weight.device if device is None else device
        kind = self.weight.dtype if dtype is None else dtype
        return replace(
            self,
            candidates=self.candidates.to(target),
            weight=self.weight.to(target, kind),
            impressions=self.impressions.to(target, kind),
            shown=None if self.shown is None else self.shown.to(target, kind),
            unseen_group=None if self.unseen_group is None else self.unseen_group.to(target),
        )

    def to_torch(self: Evidence[NDArray[Any]], dtype: torch.dtype | None = None) -> Evidence[Tensor]:
        """Return the same in tensors, of double precision unless another is asked for."""
        import torch

        return Evidence(
            candidates=self.candidates.to_torch(),
            weight=as_tensor(self.weight, dtype),
            impressions=as_tensor(self.impressions, dtype),
            shown=None if self.shown is None else as_tensor(self.shown, dtype),
            empties_dropped=self.empties_dropped,
            unseen_group=None if self.unseen_group is None else torch.from_numpy(self.unseen_group),
        )

    def in_arrays(self) -> Evidence[NDArray[Any]]:
        """Return the same in arrays, which share the memory of tensors on the CPU."""
        candidates = self.candidates
        return Evidence(
            candidates=Candidates(
                np.asarray(candidates.offsets), np.asarray(candidates.group), candidates.groups
            ),
            weight=np.asarray(self.weight),
            impressions=np.asarray(self.impressions),
            shown=None if self.shown is None else np.asarray(self.shown),
            empties_dropped=self.empties_dropped,
            unseen_group=None if self.unseen_group is None else np.asarray(self.unseen_group),
        )

    @property
    def unseen(self) -> Candidates[Values] | None:
        """The items that nobody could see, in their groups; all others are in none."""
        if self.unseen_group is None:
            return None
        return replace(self.candidates, group=self.unseen_group)


def evidence_from_relevance(data: RankingDataset, *, dtype: torch.dtype | None = None) -> Evidence:
    """Take the merit of each item to be its relevance: full information (section 3.2).

    M_q(d) = rel_{q,d}, and each list counts as one impression. Tensors are of double precision unless `dtype`
    says otherwise.
    """
    if data.relevance is None:
        raise InputError("the lists have no relevance to take merit from", column="relevance")
    relevance = data.relevance.astype(np.float64)
    return Evidence(candidates_in_arrays(data), relevance, np.ones(len(data))).to_torch(dtype)


def correct_noise(evidence: Evidence[Values], noise: ClickNoise, *, rescale: bool = True) -> Evidence[Values]:
    r"""Take the clicks that irrelevant items get by mistake off the merit of every shown item (section 3.4).

    $$
    \hat M_q(d) = \frac{c_{q,d} / p - \epsilon_-}{\epsilon_+ - \epsilon_-}
    $$

    for a shown item, and 0 for any other.

    Its expectation is rel_{q,d}, so utility and disparity from it are in the units of the true ones. With
    `rescale=False` it is c / p - eps_minus, the paper's, with expectation (eps_plus - eps_minus) rel_{q,d};
    eps_plus need not be known for that.

    Noise that depends on the position cannot be taken off sums over positions: give it to the function that
    makes the evidence, such as `evidence_from_clicks(counts, noise=noise)`.
    """
    if noise.by_position:
        problem = "noise by position is taken off as clicks are weighed; give it to evidence_from_clicks"
        raise InputError(problem, column="noise", value=noise)
    if evidence.empties_dropped:
        problem = "noise cannot be corrected in a log whose impressions without a click were dropped"
        raise InputError(problem, column="empties_dropped", value=True)
    if evidence.shown is None:
        problem = "noise can be taken off weights of clicks only, once, and before they are normalised"
        raise InputError(problem, column="shown")
    plus, minus = noise.at(1)
    corrected = evidence.weight - minus * evidence.shown
    return replace(evidence, weight=corrected / (plus - minus if rescale else 1.0), shown=None)


def self_normalise(evidence: Evidence) -> Evidence:
    r"""Divide the weights by their total for each impression, so that their mean total is 1.

    $$
    w_d = \frac{c_d / p_d}{W}, \qquad
    W = \frac{1}{|\mathcal{Q}|} \sum_q \sum_d \frac{c_{q,d}}{p_{q,d}}
    $$

    The utility becomes sum (c/p) E[f] / sum (c/p), the mean position weight of a click weighted by 1 / p, and
    the disparity is divided by the same W. Both are biased on finite data, since W is random too, and
    consistent for the utility and disparity for each relevant item, U / E[sum_d rel] and D / E[sum_d rel]. In
    return they usually vary less, and they stay the same when all propensities are wrong by one factor, or
    when empty impressions were dropped.
    """
    total = total_of(evidence.weight)
    if not total > 0:
        raise InputError(
            "weights can be normalised only if their sum is above 0", column="weight", value=total
        )
    return replace(evidence, weight=evidence.weight * (evidence.total_impressions / total), shown=None)


def effective_sample_size(
    weights: NDArray[np.float64] | Tensor, squared_weights: NDArray[np.float64] | Tensor | None = None
) -> float:
    """Return (sum of weights)^2 / sum of squared weights: so many clicks of equal weight vary as much.

    Give the weight of each click, `log.ips_weights()`; or sums for each item and the sums of squares beside
    them, `compact.ips_weights()` and `compact.squared_ips_weights()`. Without any weight it is 0.
    """
    given = np.asarray(weights, dtype=np.float64)
    largest = float(np.abs(given).max(initial=0.0))
    if largest == 0:
        return 0.0
    # relative to the largest, so that squares of huge weights stay finite
    given = given / largest
    if squared_weights is None:
        return float(given.sum() ** 2 / (given**2).sum())
    squares = np.asarray(squared_weights, dtype=np.float64) / largest / largest
    return float(given.sum() ** 2 / squares.sum())


def as_tensor(values: NDArray[Any], dtype: torch.dtype | None) -> Tensor:
    """Return numbers as a tensor that shares no memory with them, of double precision by default."""
    import torch

    # a copy, since arrays read from files may be locked against writing, which torch does not like
    return torch.from_numpy(values.astype(np.float64)).to(dtype or torch.float64)
