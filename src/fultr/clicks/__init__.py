"""Examination and click noise: the model, its simulation, and its estimation from logs."""

from fultr.click_model import ClickNoise, PositionBias
from fultr.clicks.noise import NoiseEstimate, estimate_noise
from fultr.clicks.simulation import Planting, simulate_clicks

__all__ = ["ClickNoise", "NoiseEstimate", "Planting", "PositionBias", "estimate_noise", "simulate_clicks"]
