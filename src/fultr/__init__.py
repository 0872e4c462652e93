"""Learn rankings from clicks that are useful to searchers and fair to the items ranked."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
