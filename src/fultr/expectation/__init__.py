"""Expected position weights under Plackett-Luce policies, and their gradients."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
