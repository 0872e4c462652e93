"""From a table of searches to what each group of jobs has earned, in the words of a job board.

The table is made up here; yours comes from a file: `fultr.read_log("searches.parquet")`.
"""

import numpy as np

import fultr

rng = np.random.default_rng(0)
rows = []
for search in range(400):
    query = f"search {rng.integers(20)}"
    # agencies' jobs are shown first, though direct employers' jobs are as good
    jobs = [("agency", number) for number in range(3)] + [("direct", number) for number in range(3)]
    if rng.random() < 0.2:  # some rankings were shuffled
        rng.shuffle(jobs)
    for position, (owner, number) in enumerate(jobs, start=1):
        looked_at, good = rng.random() < 1 / position, rng.random() < 0.4
        rows.append((search, query, f"{owner} {number}", position, int(looked_at and good), owner))

columns = ("impression_id", "query_id", "doc_id", "position", "click", "group")
table = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
log = fultr.read_log(table, position_bias=fultr.PositionBias.power(1.0))
print(log)

group = log.data.group[log.row_of_entry]
weights = log.ips_weights()
exposure = log.propensities()
for code, name in enumerate(log.data.group_names):
    of_group = group == code
    print(
        f"{name:8} share of clicks {log.click[of_group].sum() / log.click.sum():.2f},"
        f" of exposure {exposure[of_group].sum() / exposure.sum():.2f},"
        f" of merit {weights[of_group].sum() / weights.sum():.2f}"
    )

for finding in fultr.inspect_log(log):
    print(f"{finding.severity}: {finding.sentence}")
