"""Utility, merit, exposure and disparity, from relevances and from clicks: one function for each equation.

Whatever is estimated of a policy is linear in the expected position weights of the items, E[f(rank)] and
E[v(rank)], which `fultr.expectation` computes. Every function here takes them first, as a tensor of
(..., rows) whose leading dimensions are configurations, then the `Evidence` about relevance; gradients flow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
