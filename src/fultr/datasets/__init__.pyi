from .german import german_credit
from .group_rules import group_by
from .loading import LETOR_ENDINGS, load_dataset
from .mslr import mslr
from .studios import studios
from .synthetic import synthetic

__all__ = ["LETOR_ENDINGS", "german_credit", "group_by", "load_dataset", "mslr", "studios", "synthetic"]
