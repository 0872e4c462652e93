"""Examination and click noise: the model, its simulation, and its estimation from logs."""

from fultr.click_model import ClickNoise, PositionBias, PositionBiasByContext
from fultr.clicks.bias_em import estimate_bias_em
from fultr.clicks.bias_estimate import BiasEstimate, GoodnessOfFit
from fultr.clicks.bias_files import read_bias, read_position_bias, write_bias
from fultr.clicks.bias_harvest import estimate_bias_harvest
from fultr.clicks.bias_methods import BiasComparison, compare_biases, estimate_bias, supported_methods
from fultr.clicks.bias_swap import estimate_bias_swap
from fultr.clicks.drawing import Planting
from fultr.clicks.noise import NoiseEstimate, estimate_noise
from fultr.clicks.noise_swap import TrustEstimate, estimate_noise_swap
from fultr.clicks.readiness import Readiness, judge_readiness, severe_lines
from fultr.clicks.simulation import simulate_clicks
from fultr.clicks.streamed_simulation import simulate_log

__all__ = [
    "BiasComparison",
    "BiasEstimate",
    "ClickNoise",
    "GoodnessOfFit",
    "NoiseEstimate",
    "Planting",
    "PositionBias",
    "PositionBiasByContext",
    "Readiness",
    "TrustEstimate",
    "compare_biases",
    "estimate_bias",
    "estimate_bias_em",
    "estimate_bias_harvest",
    "estimate_bias_swap",
    "estimate_noise",
    "estimate_noise_swap",
    "judge_readiness",
    "read_bias",
    "read_position_bias",
    "severe_lines",
    "simulate_clicks",
    "simulate_log",
    "supported_methods",
    "write_bias",
]
