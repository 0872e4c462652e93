"""How fast data is read and written, and how much memory that takes.

    FULTR_MSLR=/data/mslr python benchmarks/bench_files.py [--quick] [--folder /tmp]

Without FULTR_MSLR (a folder with Fold1/train.txt or train.txt) rows of the same shape are generated. One
thread. The large file is made in a temporary folder that is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

SPLITS = ("train", "vali", "test")
LARGE_ROWS = 2_300_000
BYTES_A_ROW = 1200
REPEATS = 3
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}

Row = tuple[str, str, str]
"""What was measured, the figure, and what it is compared with."""


def main() -> None:
    """Print one table of all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the large file")
    parser.add_argument("--folder", type=Path, default=None, help="where temporary files go")
    arguments = parser.parse_args()
    os.environ.update(ONE_THREAD)
    rows = LARGE_ROWS // 20 if arguments.quick else LARGE_ROWS
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        samples, origin = sample_files(folder)
        print(f"data: {origin}\n")
        print_rows(sample_rows(samples))
        free, needed = shutil.disk_usage(folder).free, rows * BYTES_A_ROW * 2
        if free < needed:
            print(f"\nno large file: {free / 1e9:.1f} GB free in {folder}, {needed / 1e9:.1f} GB needed")
            return
        print(f"\nlarge file: {rows} rows, the rows above repeated as new queries")
        print_rows(large_rows(samples, folder, rows))


def sample_files(folder: Path) -> tuple[list[Path], str]:
    """Return the files of the MSLR sample, or of generated rows like them, and say which."""
    if "FULTR_MSLR" in os.environ:
        fold = Path(os.environ["FULTR_MSLR"])
        fold = fold if (fold / "train.txt").exists() else fold / "Fold1"
        return [fold / f"{split}.txt" for split in SPLITS], f"MSLR in {fold}"
    path = folder / "generated.txt"
    in_process(GENERATE, path)
    return [path], "generated rows (set FULTR_MSLR to use MSLR)"


def sample_rows(samples: list[Path]) -> Iterator[Row]:
    """Compare `read_letor` with scikit-learn on each file, and measure its memory."""
    for path in samples:
        megabytes = path.stat().st_size / 1e6
        ours, theirs = (in_process(code, path)["seconds"] for code in (READ_OURS, READ_SKLEARN))
        yield f"read_letor, {path.name}", speed(megabytes, ours), f"{theirs / ours:.1f} x scikit-learn"
        yield f"scikit-learn, {path.name}", speed(megabytes, theirs), ""
        yield memory_row(path)


def large_rows(samples: list[Path], folder: Path, rows: int) -> Iterator[Row]:
    """Measure reading and converting a file of the size of the whole of MSLR-WEB30K's training data."""
    text, arrow, parquet = (folder / f"large.{ending}" for ending in ("txt", "arrow", "parquet"))
    write_large(samples, text, rows)
    megabytes = text.stat().st_size / 1e6
    reading = seconds(partial(read_bytes, text))
    ours = in_process(READ_ONCE, text)["seconds"]
    yield (
        f"read_letor, {megabytes:.0f} MB",
        speed(megabytes, ours),
        f"{ours / reading:.1f} x reading the bytes",
    )
    yield memory_row(text)
    converted = in_process(CONVERT, text, arrow, parquet)
    for path in (arrow, parquet):
        stored = path.stat().st_size / 1e6
        yield f"write {path.suffix}, {stored:.0f} MB", f"{converted[path.suffix]:.2f} s", ""
        for state, code in (("cached", LOAD), ("from disk", LOAD_FROM_DISK)):
            bytes_alone = seconds(partial(read_bytes, path), path if code == LOAD_FROM_DISK else None)
            loading = in_process(code, path)["seconds"]
            ratio = f"{loading / bytes_alone:.2f} x reading the bytes"
            yield f"load {path.suffix}, {state}", speed(stored, loading), ratio


def memory_row(path: Path) -> Row:
    """Compare the peak memory of reading with that of a process that has everything loaded but the data."""
    report, idle = in_process(MEMORY, path), in_process(MEMORY_IDLE, path)
    grown, arrays = report["peak"] - idle["peak"], report["arrays"]
    figure = f"{grown / 1e6:.0f} MB for arrays of {arrays / 1e6:.0f} MB"
    return f"peak memory, {path.name}", figure, f"{grown / arrays:.2f} x the arrays"


def write_large(samples: list[Path], target: Path, rows: int) -> None:
    """Repeat the samples until there are enough rows; each repetition has queries of its own."""
    written, copy = 0, 0
    with target.open("wb") as out:
        while written < rows:
            for number, sample in enumerate(samples):
                prefix = b"qid:%d" % (copy * len(samples) + number)
                with sample.open("rb") as lines:
                    for line in lines:
                        label, query, features = line.split(b" ", 2)
                        # the ids of the samples have fewer digits than the zeros that part them
                        out.write(b"%b %b%b %b" % (label, prefix, query[4:].zfill(8), features))
                        written += 1
                        if written == rows:
                            return
            copy += 1


def read_bytes(path: Path) -> None:
    """Read a file and do nothing with it, as `cat file > /dev/null` does."""
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def drop_from_cache(path: Path) -> None:
    """Have the system drop what it keeps of a file in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds(action: Callable[[], None], uncached: Path | None = None) -> float:
    """Return the shortest of a few times; `forgotten` is dropped from memory before each."""
    times = []
    for _ in range(REPEATS):
        if uncached is not None:
            drop_from_cache(uncached)
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def speed(megabytes: float, duration: float) -> str:
    """Return a time and the speed that it means."""
    return f"{duration:.3f} s, {megabytes / duration:.0f} MB/s"


def print_rows(rows: Iterator[Row]) -> None:
    """Print measurements as they come."""
    for name, figure, ratio in rows:
        print(f"{name:<32}{figure:<38}{ratio}".rstrip(), flush=True)


def in_process(code: str, *paths: Path) -> dict[str, float]:
    """Run code in a process of its own and return the JSON it prints."""
    command = [sys.executable, "-c", PRELUDE + code, *map(str, paths)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent)
    return dict(json.loads(output.stdout))


def peak_memory() -> int:
    """Return the most memory that this process has had, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # unlike the other figure, this one does not include the process that started us
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


PRELUDE = """
import json, sys, tempfile, time
from pathlib import Path
import numpy as np
import pyarrow as pa
pa.set_cpu_count(1)
pa.set_io_thread_count(1)
from bench_files import peak_memory, seconds
from fultr.data.dataset import RankingDataset
from fultr.data.dataset_files import read_dataset, write_dataset
from fultr.data import read_letor, write_letor
path = Path(sys.argv[1])
def warm():
    # compile, and have pyarrow import what it imports when first used
    with tempfile.TemporaryDirectory() as folder:
        text, table = Path(folder, "small.txt"), Path(folder, "small.arrow")
        text.write_text("1 qid:1 1:2\\n0 qid:2 1:3 2:1e-3\\n1 qid:1 1:2\\n")
        write_dataset(read_letor(text), table)
        read_dataset(table)
def report(**figures):
    print(json.dumps(figures))
"""
READ_OURS = "warm(); report(seconds=seconds(lambda: read_letor(path)))"
READ_ONCE = (
    "warm(); start = time.perf_counter(); read_letor(path); report(seconds=time.perf_counter() - start)"
)
READ_SKLEARN = """
from sklearn.datasets import load_svmlight_file
report(seconds=seconds(lambda: load_svmlight_file(str(path), query_id=True)))
"""
MEMORY_IDLE = "warm(); report(peak=peak_memory())"
MEMORY = """
warm()
data = read_letor(path)
arrays = (data.features, data.offsets, data.group, data.relevance, data.query_id, data.doc_id, data.comment)
report(peak=peak_memory(), arrays=sum(array.nbytes for array in arrays if array is not None))
"""
CONVERT = """
data, times = read_letor(path), {}
for target in sys.argv[2:]:
    start = time.perf_counter()
    write_dataset(data, target)
    times["." + target.rpartition(".")[2]] = time.perf_counter() - start
report(**times)
"""
LOAD = "warm(); report(seconds=seconds(lambda: read_dataset(path)))"
LOAD_FROM_DISK = "warm(); report(seconds=seconds(lambda: read_dataset(path), path))"
GENERATE = """
generator = np.random.default_rng(0)
features = np.where(generator.random((19_000, 136)) < 0.55, generator.poisson(0.7, (19_000, 136)),
                    generator.lognormal(2.0, 2.0, (19_000, 136)).round(6))
offsets = np.arange(0, 19_001, 100)
data = RankingDataset(features, offsets, relevance=generator.integers(0, 5, 19_000))
write_letor(data, path)
report()
"""

if __name__ == "__main__":
    main()
