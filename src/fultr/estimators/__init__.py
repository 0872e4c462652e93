"""Utility, merit, exposure and disparity, from relevances and from clicks: one function for each equation.

Whatever is estimated of a policy is linear in the expected position weights of the items, E[f(rank)] and
E[v(rank)], which `fultr.expectation` computes. Every function here takes them first, as a tensor of
(..., rows) whose leading dimensions are configurations, then the `Evidence` about relevance; gradients flow.
"""

from fultr.estimators.click_evidence import (
    evidence_from_clicks,
    evidence_of_bare_clicks,
    merit_evidence,
    policy_aware_evidence,
    pooled_evidence,
)
from fultr.estimators.doubly_robust import doubly_robust_evidence
from fultr.estimators.evidence import (
    Candidates,
    Evidence,
    correct_noise,
    effective_sample_size,
    evidence_from_relevance,
    self_normalise,
)
from fultr.estimators.measures import (
    disparity,
    disparity_squared,
    disparity_squared_slopes,
    group_exposure,
    group_merit,
    list_disparities,
    list_disparity,
    list_disparity_bounds,
    list_utilities,
    noise_corrected_disparity,
    utility,
    utility_of_rankings,
    weights_at,
)
from fultr.estimators.ratios import (
    InverseMerit,
    inverse_merit_from_clicks,
    inverse_merit_from_relevance,
    per_impression_ratio_disparity,
    ratio_of_sums_disparity,
)

__all__ = [
    "Candidates",
    "Evidence",
    "InverseMerit",
    "correct_noise",
    "disparity",
    "disparity_squared",
    "disparity_squared_slopes",
    "doubly_robust_evidence",
    "effective_sample_size",
    "evidence_from_clicks",
    "evidence_from_relevance",
    "evidence_of_bare_clicks",
    "group_exposure",
    "group_merit",
    "inverse_merit_from_clicks",
    "inverse_merit_from_relevance",
    "list_disparities",
    "list_disparity",
    "list_disparity_bounds",
    "list_utilities",
    "merit_evidence",
    "noise_corrected_disparity",
    "per_impression_ratio_disparity",
    "policy_aware_evidence",
    "pooled_evidence",
    "ratio_of_sums_disparity",
    "self_normalise",
    "utility",
    "utility_of_rankings",
    "weights_at",
]
