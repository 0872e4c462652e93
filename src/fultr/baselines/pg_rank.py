"""PG-Rank: policy gradients for utility alone, with clicks taken for relevance."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fultr.click_model import ClickNoise, PositionBias
from fultr.data import Source
from fultr.training.fair_ranker import FairRanker
from fultr.training.preparation import check_validated
from fultr.training.ranker import TrainableRanker
from fultr.training.sources import with_validation


class PGRank(TrainableRanker):
    """Learn a stochastic ranking policy for utility alone, and take clicks for relevance.

    PG-Rank of Singh and Joachims (2019) on clicks: it knows of no position bias and no click noise, so that
    what was shown at the top counts for more than it should. On labelled lists it has full information.

    Parameters
    ----------
    model, hidden, l2, scale_features, valid_share, seed
        As those of `FairRanker`.
    position_bias
        Examination probabilities, for the exposure of the trained policy; training does not use them. By
        default those of the log.

    Examples
    --------
    >>> import fultr
    >>> data = fultr.datasets.synthetic(queries=60, seed=0)
    >>> bias = fultr.PositionBias.power(1.0)
    >>> log = fultr.simulate_clicks(data.train, fultr.RandomRanking(), bias, clicks=500, seed=0)
    >>> PGRank(l2=0.01).fit(log).rank(data.test).min()
    np.int32(1)
    """

    stochastic = True

    def __init__(
        self,
        *,
        model: str | nn.Module = "linear",
        hidden: Sequence[int] | None = None,
        l2: float | Sequence[float] | None = None,
        position_bias: PositionBias | None = None,
        scale_features: bool | None = None,
        valid_share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.l2 = l2
        self.position_bias = position_bias
        self.scale_features = scale_features
        self.valid_share = valid_share
        self.seed = seed

    def learn(self, source: Source, valid: Source | None) -> PGRank:
        """Train on a log or on labelled lists, and copy all that was learned."""
        settings = self.get_params(deep=False)
        share = settings.pop("valid_share")
        ranker = FairRanker(0.0, utility_ips=False, noise=ClickNoise(), folds=0, **settings)
        check_validated(ranker, valid, share)
        if valid is not None or share:
            source, valid = with_validation(source, valid, share, self.seed)
        trained = ranker.learn(source, valid)
        self.copy_trained(trained)
        return self
