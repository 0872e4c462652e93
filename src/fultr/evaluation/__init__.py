"""Exact utility and disparity of a policy, and bootstrap intervals over queries."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
