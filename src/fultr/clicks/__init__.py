"""Examination and click noise: the model, its simulation, and its estimation from logs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
