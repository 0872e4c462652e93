"""Logs: how rows become counts or single impressions, and how they are written."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
