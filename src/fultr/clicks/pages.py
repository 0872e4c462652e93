"""Whether a log has rows for all candidates, or only for those on the page."""

from __future__ import annotations

import numpy as np

from fultr.clicks.bias_cells import items_of_rows
from fultr.data import COMPLETE_LISTS, NEVER_SHOWN, Counts
from fultr.data.dataset import rows_of
from fultr.errors import InputError

UNSEEN_PART = 0.01
"""From this part of the candidates on, those that were not shown can decide the disparity: a relevant item
more in a group may outweigh all that is known."""


def share_on_a_page(counts: Counts) -> float | None:
    """Return the share of all documents of its query that an impression has, on average.

    None where the log knows who was not shown, since some impression has candidates that it does not show;
    where it was said that lists are complete; and without ids of documents.
    """
    data, statements = counts.data, {COMPLETE_LISTS, NEVER_SHOWN} & counts.origin.keys()
    if statements or data.doc_id is None or counts.hides_candidates or not counts.impressions.any():
        return None
    items = items_of_rows(data)
    shown = rows_of(data.offsets, np.flatnonzero(counts.impressions))
    first = np.unique(items[shown], return_index=True)[1]
    query = data.query_codes[data.list_of_row[shown[first]]]
    documents = np.bincount(query, minlength=int(data.query_codes.max()) + 1)
    share = data.lengths / np.maximum(documents[data.query_codes], 1)
    return float(np.average(share, weights=counts.impressions))


def check_candidates(counts: Counts, limit: float) -> None:
    """Refuse a limit on a log that shows by itself that it lacks rows for candidates.

    Impressions of one query have different documents, and none has a candidate that it does not show: who
    else could have been shown is not known, and with it the disparity among all of them.
    """
    share = share_on_a_page(counts)
    if share is None or share >= 1 - UNSEEN_PART:
        return
    problem = (
        f"impressions have only what they show, on average {share:.0%} of the documents of their query, so"
        " that the disparity among all candidates is not known and cannot be limited. Add a row with an empty"
        " position for each candidate that was not shown; or say that there were no others"
        " ({with_complete_lists()}); or give no limit"
    )
    raise InputError(problem, column="max_disparity", value=limit, options=["with_complete_lists()"])
