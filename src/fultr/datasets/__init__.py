"""Recipes that make labelled ranking data: real, generated, and small examples."""

from fultr.datasets.german import german_credit
from fultr.datasets.group_rules import group_by
from fultr.datasets.load import load
from fultr.datasets.mslr import mslr
from fultr.datasets.studios import studios
from fultr.datasets.synthetic import synthetic

__all__ = ["german_credit", "group_by", "load", "mslr", "studios", "synthetic"]
