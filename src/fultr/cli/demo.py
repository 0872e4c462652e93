"""`fultr demo`: the main job on German Credit, out of the box."""

from __future__ import annotations

from fultr.cli.options import Json, Seed
from fultr.cli.output import print_json, progress, results
from fultr.cli.summaries import print_log
from fultr.clicks import ClickNoise, PositionBias, simulate_clicks
from fultr.datasets import german_credit
from fultr.policy import RankingSVM


def demo(seed: Seed = 0, json: Json = False) -> None:
    """Simulate a biased click log on German Credit and show what it holds, by group and position.

    \b
    Example:
      fultr demo
    """
    data = german_credit(seed=seed).train
    policy = RankingSVM.train(data, seed=seed)
    with progress("simulating") as report:
        log = simulate_clicks(
            data,
            policy,
            PositionBias.power(1.0),
            noise=ClickNoise(),
            clicks=5_000,
            seed=seed,
            progress=report,
        )
    if json:
        print_json({"data": data.describe(), "policy": repr(policy), "log": log.describe()})
        return
    console = results()
    console.print(
        f"{len(data)} loan queries of {data.lengths[0]} applicants, ranked by a {policy}; simulated users"
        " look at position k with probability 1/k and click every creditworthy applicant they look at.\n"
    )
    print_log(console, log.describe())
    console.print(
        "\nClicks fall with the position whoever stands there: counted as they are, they reward what was"
        " ranked high. Weighting each click by 1/v_k undoes it."
    )
