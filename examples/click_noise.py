"""Measure click noise by planting items that are known to be irrelevant (section 3.4 of the paper)."""

import fultr
from fultr.clicks import Planting

data = fultr.datasets.german_credit(seed=0)
log = fultr.simulate_clicks(
    data.train,
    fultr.RankingSVM.train(data.train),
    fultr.PositionBias.power(eta=1.0),
    noise=fultr.ClickNoise(eps_plus=1.0, eps_minus=0.1),
    impressions=36_000,
    planting=Planting(share=0.1, positions=(1, 2, 3, 4, 5)),
    seed=0,
)
estimate = fultr.estimate_noise(log)
print(f"eps_minus is 0.1, estimated as {estimate.eps_minus:.3f}, ", end="")
print(f"with a 95% interval from {estimate.low:.3f} to {estimate.high:.3f}")
