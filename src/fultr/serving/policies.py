"""The policies of a service: which one ranks a request, and new ones when their files are replaced."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.errors import FultrError
from fultr.files import existing_file
from fultr.policy.drawn_order import order_of_arrival, waiting_times
from fultr.serving.item_table import ServedItems
from fultr.serving.light_policy import LightPolicy, load_policy
from fultr.serving.requests import FeatureReader, with_other

Features = NDArray[np.float32]


class Stamp(NamedTuple):
    """What changes when a file is replaced."""

    modified: int
    size: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Return the stamp of a file."""
        about = path.stat()
        return cls(about.st_mtime_ns, about.st_size, about.st_ino)


@dataclass
class Slot:
    """A file of a policy, and the policy that was in it when it was read last."""

    path: Path
    policy: LightPolicy
    stamp: Stamp
    columns: NDArray[np.intp] | None = None
    """Where its features are among those of all policies; None if they are the same."""
    category_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the codes of its categories stand for in what it is given."""
    recorded_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What they stand for in what is recorded, which depends on the policy alone."""

    def recorded(self, features: Features) -> Features:
        """Return features as they are recorded: those of the policy, with the codes of its own categories."""
        own = features if self.columns is None else features[:, self.columns]
        for name, texts in self.recorded_names.items():
            given = self.category_names[name]
            if given != texts:
                codes = {text: code for code, text in enumerate(texts)}
                new = np.array([codes.get(text, len(texts) - 1) for text in given], np.float32)
                column, own = self.policy.feature_names.index(name), own.copy()
                is_given = ~np.isnan(own[:, column])
                own[is_given, column] = new[own[is_given, column].astype(np.intp)]
        return own

    def ranking(
        self, features: Features, groups: Sequence[str | None], ids: Sequence[str], seed: str | None
    ) -> NDArray[np.intp]:
        """Draw a ranking; with a seed it does not depend on the order in which candidates come."""
        own = features if self.columns is None else features[:, self.columns]
        scores = self.policy.scores(own, groups, self.category_names)
        if not np.isfinite(scores).all():
            raise FultrError(f"policy {self.policy.version} gives a score that is not finite")
        if not self.policy.stochastic:
            return np.argsort(-scores, kind="stable")
        times = waiting_times(len(ids), seed)
        if seed is not None:
            by_id = np.empty_like(times)
            by_id[sorted(range(len(ids)), key=ids.__getitem__)] = times
            times = by_id
        return order_of_arrival(scores, times)


class Change(NamedTuple):
    """A policy file that was replaced: the policy before, the one that is in it now, or what is wrong."""

    slot: Slot
    before: LightPolicy
    new: LightPolicy | None
    problem: str = ""


class ServedPolicies:
    """All policies of a service.

    Parameters
    ----------
    paths, shares
        Those that are shown, and to what share of the sessions.
    shadows
        Those that are scored only.
    items
        The file of the table of items, if there is one.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        shares: Sequence[float],
        shadows: Sequence[str | Path] = (),
        items: str | Path | None = None,
    ) -> None:
        self.shown = [_slot(Path(path)) for path in paths]
        self.shadows = [_slot(Path(path)) for path in shadows]
        self.limits = list(accumulate(shares))
        self.items: ServedItems | None = None
        self._set_features()
        if items is not None:
            self.items = ServedItems(items, self.reader)

    @property
    def slots(self) -> list[Slot]:
        """All slots, those that are shown first."""
        return [*self.shown, *self.shadows]

    def _set_features(self) -> None:
        """Find the features of all policies together, and where those of each are among them."""
        names = tuple(dict.fromkeys(name for slot in self.slots for name in slot.policy.feature_names))
        categories: dict[str, dict[str, None]] = {}
        for slot in self.slots:
            for name, texts in slot.policy.category_names.items():
                categories.setdefault(name, {}).update(dict.fromkeys(texts))
        category_names = {name: tuple(texts) for name, texts in categories.items()}
        if self.items is not None:  # its codes stay what they are
            names, category_names = self.items.names, self.items.category_names
        self.reader = FeatureReader(
            names,
            category_names,
            allows_missing=all(slot.policy.allows_missing for slot in self.slots),
        )
        for slot in self.slots:
            own = slot.policy.feature_names
            slot.columns = None if own == names else np.array([names.index(name) for name in own])
            slot.category_names = {
                name: texts for name, texts in self.reader.category_names.items() if name in own
            }
            slot.recorded_names = {
                name: with_other(texts) for name, texts in slot.policy.category_names.items()
            }

    def choose(self, session: str | None) -> Slot:
        """Return the policy of a session, always the same one; without a session, of one request."""
        if len(self.shown) == 1:
            return self.shown[0]
        if session is None:
            drawn = random.random()  # noqa: S311 - a share, no secret
        else:
            digest = hashlib.blake2b(session.encode(), digest_size=8, person=b"fultr share").digest()
            drawn = int.from_bytes(digest, "little") / 2**64
        index = next((at for at, limit in enumerate(self.limits) if drawn < limit), len(self.shown) - 1)
        return self.shown[index]

    def replaced(self) -> list[Change]:
        """Read policy files that were replaced; nothing changes before `apply`, so any thread may do it."""
        changes = []
        for slot in self.slots:
            try:
                stamp = Stamp.of(slot.path)
            except OSError:
                continue  # being replaced, or gone: the policy stays
            if stamp == slot.stamp:
                continue
            slot.stamp = stamp
            try:
                new = _checked(slot.path)
                if self.items is not None:
                    self.items.check(new)
            except Exception as error:
                changes.append(Change(slot, slot.policy, None, str(error) or type(error).__name__))
            else:
                changes.append(Change(slot, slot.policy, new))
        return changes

    def apply(self, changes: Sequence[Change]) -> None:
        """Rank with new policies from now on, on the thread that ranks."""
        for change in changes:
            if change.new is not None:
                change.slot.policy = change.new
        self._set_features()


def _slot(path: Path) -> Slot:
    stamp = Stamp.of(existing_file(path))
    return Slot(path, _checked(path), stamp)


def _checked(path: Path) -> LightPolicy:
    """Load a policy, and try it."""
    policy = load_policy(path)
    rows = np.zeros((2, len(policy.feature_names)), np.float32)
    policy.rank_one(rows, seed="try", groups=[None, None])
    return policy
