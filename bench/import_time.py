"""How long `import assay` takes (at most 150 ms): the median over fresh processes, and what NumPy takes beside it."""

import argparse
import statistics
import subprocess
import sys

CODE = """
from time import perf_counter
start = perf_counter()
import assay
end = perf_counter()
import numpy, ml_dtypes
base = perf_counter()
print((base - end) * 1000, (end - start) * 1000)
"""


def measure() -> tuple[float, float]:
    """Milliseconds in one fresh process: NumPy with ml_dtypes, and assay, which imports them when it needs them."""
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    base, total = map(float, done.stdout.split())
    return base, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11, help="processes to start")
    runs: int = parser.parse_args().runs
    measure()  # warms the file cache and writes the bytecode
    base, total = zip(*(measure() for _ in range(runs)), strict=True)
    print(
        f"import assay: {statistics.median(total):.1f} ms,"
        f" numpy and ml_dtypes, which come when they are needed, {statistics.median(base):.1f} ms more"
        f" (medians of {runs} processes; {min(total):.1f} to {max(total):.1f} ms)"
    )


if __name__ == "__main__":
    main()
