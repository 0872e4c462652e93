"""Names of the 136 features of Microsoft's learning-to-rank data."""

from __future__ import annotations

STREAMS = ("body", "anchor", "title", "url", "whole document")

STATISTICS = (
    "covered query term number",
    "covered query term ratio",
    "stream length",
    "IDF",
    *(
        f"{statistic} of {quantity}"
        for quantity in ("term frequency", "length-normalized term frequency", "tf*idf")
        for statistic in ("sum", "min", "max", "mean", "variance")
    ),
    "boolean model",
    "vector space model",
    "BM25",
    "LMIR.ABS",
    "LMIR.DIR",
    "LMIR.JM",
)
"""What is measured for each stream, that is each part of a page."""

OF_THE_PAGE = (
    "slashes in URL",
    "URL length",
    "inlinks",
    "outlinks",
    "PageRank",
    "SiteRank",
    "QualityScore",
    "QualityScore2",
    "query-url click count",
    "url click count",
    "url dwell time",
)

FEATURE_NAMES = (
    *(f"{statistic}:{stream}" for statistic in STATISTICS for stream in STREAMS),
    *OF_THE_PAGE,
)
"""Feature 1 of the files is the first; for example "BM25:title"."""

GROUP_COLUMN = 132
"""The column of feature 133, by which the paper groups pages."""
