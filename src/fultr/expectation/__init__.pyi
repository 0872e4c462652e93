from .operation import expected_position_weights, expected_weights, value_and_gradient
from .plain_torch import plain_expected_weights
from .weights import average_rank_weights, dcg_weights, examination_weights

__all__ = [
    "average_rank_weights",
    "dcg_weights",
    "examination_weights",
    "expected_position_weights",
    "expected_weights",
    "plain_expected_weights",
    "value_and_gradient",
]
