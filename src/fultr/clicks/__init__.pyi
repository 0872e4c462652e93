from .bias_em import estimate_bias_em
from .bias_estimate import METHODS, BiasEstimate, GoodnessOfFit, Method, Tail, position_ranges
from .bias_files import read_bias, read_position_bias, write_bias
from .bias_harvest import estimate_bias_harvest
from .bias_methods import BiasComparison, compare_biases, estimate_bias, supported_methods
from .bias_swap import estimate_bias_swap
from .drawing import Planting
from .examination import AnyBias, context_of, with_examination
from .noise import NoiseEstimate, estimate_noise
from .noise_swap import TrustEstimate, estimate_noise_swap
from .pages import check_candidates
from .readiness import Readiness, judge_readiness, severe_lines
from .readiness_findings import sentence_of_left_out
from .simulation import simulate_clicks
from .streamed_simulation import simulate_log

__all__ = [
    "METHODS",
    "AnyBias",
    "BiasComparison",
    "BiasEstimate",
    "GoodnessOfFit",
    "Method",
    "NoiseEstimate",
    "Planting",
    "Readiness",
    "Tail",
    "TrustEstimate",
    "check_candidates",
    "compare_biases",
    "context_of",
    "estimate_bias",
    "estimate_bias_em",
    "estimate_bias_harvest",
    "estimate_bias_swap",
    "estimate_noise",
    "estimate_noise_swap",
    "judge_readiness",
    "position_ranges",
    "read_bias",
    "read_position_bias",
    "sentence_of_left_out",
    "severe_lines",
    "simulate_clicks",
    "simulate_log",
    "supported_methods",
    "with_examination",
    "write_bias",
]
