"""Other methods, with the interface of FairRanker: the paper's baselines, and two that users know."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
