"""Run all measurements, one table after another.

make bench                                   all of them, a file of the size of MSLR-WEB30K among them
FULTR_MSLR=/data/mslr make bench             on Microsoft's data instead of generated rows
python -m benchmarks --quick                 a twentieth of the size
"""

from __future__ import annotations

from benchmarks import (
    bench_clicks,
    bench_counting,
    bench_files,
    bench_gradients,
    bench_serving,
    bench_start,
    bench_training,
    bench_trees,
)


def main() -> None:
    """Run one after another; each reads the command line itself."""
    bench_start.main()
    print()
    bench_gradients.main()
    print()
    bench_clicks.main()
    print()
    bench_files.main()
    print()
    bench_counting.main()
    print()
    bench_training.main()
    print()
    bench_trees.main()
    print()
    bench_serving.main()


if __name__ == "__main__":
    main()
