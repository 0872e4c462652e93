"""A table of items in memory, so that requests need no more than the ids of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fultr.errors import InputError
from fultr.files import existing_file
from fultr.serving.requests import FeatureReader

if TYPE_CHECKING:
    from fultr.data.categories import RawFeatures
    from fultr.serving.light_policy import LightPolicy

Features = NDArray[np.float32]


class ServedItems:
    """Features and groups of items, by their id, and by their query where the table has queries.

    Parameters
    ----------
    path
        A .parquet, .csv or .arrow file with `doc_id`, and if it has them `query_id`, `group` and features.
    reader
        Which features are wanted, and what their categories are.
    """

    def __init__(self, path: str | Path, reader: FeatureReader) -> None:
        from fultr.data.categories import RawFeatures
        from fultr.data.columns import LIST_COLUMN, require_columns, text_labels
        from fultr.data.fields import numbered_names
        from fultr.data.table_files import open_table
        from fultr.logs.features import expected_columns, matching_columns

        table = open_table(existing_file(path))
        require_columns(table.schema.names, ["doc_id"], path)
        names = reader.names
        columns = expected_columns(table, names)
        raw = RawFeatures(
            [column for column, name in zip(columns, names, strict=False) if name in reader.category_names],
            allows_missing=reader.allows_missing,
        )
        keys = [name for name in ("query_id", "doc_id", "group") if name in table.schema.names]
        self.names, self.has_queries = tuple(names), "query_id" in keys
        self.rows: dict[tuple[str, str] | str, int] = {}
        self.groups: list[str | None] = []
        blocks: list[Features] = []
        for batch, location in table.batches(list(dict.fromkeys([*keys, *columns]))):
            rows = len(batch["doc_id"])
            features = raw.table({name: batch[name] for name in columns}, rows, location)
            if columns == [LIST_COLUMN]:
                listed = table.metadata.get("feature_names")
                present = listed if isinstance(listed, list) else numbered_names(features.shape[1])
                features = features[:, matching_columns(present, names, path)]
            blocks.append(features)
            ids = [str(one) for one in batch["doc_id"].to_pylist()]
            queries = [str(one) for one in batch["query_id"].to_pylist()] if self.has_queries else []
            keys_of: list[Any] = list(zip(queries, ids, strict=True)) if queries else ids
            for row, key in enumerate(keys_of):
                if self.rows.setdefault(key, len(self.rows)) != len(self.groups) + row:
                    problem = "the item stands in the table twice"
                    at = location.first_row + row
                    raise InputError(problem, file=path, row=at, column="doc_id", value=key)
            labels = text_labels(batch["group"], "group", location) if "group" in keys else [None] * rows
            self.groups += [None if one is None else str(one) for one in labels]
        features = np.concatenate(blocks) if blocks else np.zeros((0, len(names)), np.float32)
        self.features = self._coded(features, columns, raw, reader)
        self.category_names = dict(reader.category_names)
        self.has_missing = bool(np.isnan(self.features).any())

    def check(self, policy: LightPolicy) -> None:
        """Refuse a policy that needs features, categories or values that this table was not loaded with."""
        without, restart = "the table of items was loaded without", "of the new policy; restart the service"
        for name in policy.feature_names:
            if name not in self.names:
                raise InputError(f"{without} a feature {restart}", column=name)
            own, held = policy.category_names.get(name, ()), self.category_names.get(name, ())
            missing = next((one for one in own if one not in held), None)
            if missing is not None:
                raise InputError(f"{without} a category {restart}", column=name, value=missing)
            if held and not own:
                raise InputError("holds categories, which the new policy takes for numbers", column=name)
        if self.has_missing and not policy.allows_missing:
            raise InputError("the table of items has missing values, which the new policy does not take")

    @staticmethod
    def _coded(features: Features, columns: list[str], raw: RawFeatures, reader: FeatureReader) -> Features:
        """Return features with the codes that categories have in requests."""
        from fultr.data.categories import recoded

        for column in raw.codes:
            index = columns.index(column)
            texts = reader.category_names[reader.names[index]]
            given = [] if raw.codes[column].is_text is None else raw.codes[column].texts.to_list()
            codes = recoded(features[:, index], [str(one) for one in given], texts)
            is_other = np.isnan(codes) & ~np.isnan(features[:, index])
            features[:, index] = np.where(is_other, len(texts) - 1, codes)
        return features

    def find(self, query_id: str, ids: Sequence[str]) -> tuple[Features, list[str | None]]:
        """Return the features and the groups of items; an error names the first that is not there."""
        try:
            keys = [(query_id, one) for one in ids] if self.has_queries else ids
            rows = [self.rows[key] for key in keys]
        except KeyError as error:
            problem = "the item is not in the service's table of items; give its features"
            raise InputError(problem, column="id", value=error.args[0]) from None
        return self.features[rows], [self.groups[row] for row in rows]
