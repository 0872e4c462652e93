"""The paper's experiments, rerun: its figures, its claims, and a verdict on each of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
