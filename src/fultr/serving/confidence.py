"""Intervals that hold at all times at once, however often one looks."""

from __future__ import annotations

import math

OPTIMISED_FOR = 10_000
"""Observations at which intervals are narrowest; they are hardly wider at a tenth or ten times as many."""


def confidence_radius(
    observations: int, deviation: float, alpha: float, optimised_for: int = OPTIMISED_FOR
) -> float:
    r"""Return the half-width of an asymptotic confidence sequence of a mean.

    With t observations, their standard deviation s_t and a number rho > 0,

    $$
    \bar x_t \pm s_t \sqrt{\frac{2 (t \rho^2 + 1)}{t^2 \rho^2} \log\frac{\sqrt{t \rho^2 + 1}}{\alpha}}
    $$

    covers the mean at all t at once with probability 1 - alpha, asymptotically, as an interval of the central
    limit theorem covers it at one t (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central
    limit theory and asymptotic confidence sequences", Annals of Statistics 2024, Theorem 2.2). So it may be
    looked at whenever one likes, and stopped at whenever it says something. The number rho makes it narrowest
    at m observations:

    $$
    \rho^2 = \frac{-2 \log \alpha + \log(1 - 2 \log \alpha)}{m}
    $$

    Parameters
    ----------
    observations
        t.
    deviation
        s_t.
    alpha
        One minus the level.
    optimised_for
        m.
    """
    if observations < 2:
        return math.inf
    rho = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / optimised_for
    scaled = observations * rho + 1
    factor = 2 * scaled / (observations**2 * rho) * math.log(math.sqrt(scaled) / alpha)
    return deviation * math.sqrt(factor)


def alpha_of_start(alpha: float, start: int) -> float:
    r"""Return the share of alpha for a sequence that starts on day s = 1, 2, ...

    $$
    \alpha_s = \frac{\alpha}{s (s + 1)}, \qquad \sum_{s \geq 1} \alpha_s = \alpha
    $$

    so that the sequences of all days together, without an end, are right with probability 1 - alpha.
    """
    return alpha / (start * (start + 1))
