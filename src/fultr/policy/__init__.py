"""Plackett-Luce rankings, the policies that draw them, and the scorers these follow from."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
