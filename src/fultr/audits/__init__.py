"""Audits: how fair and how useful logged rankings and candidate policies are, from clicks alone."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
