"""Recipes that make labelled ranking data: real, generated, and small examples."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
