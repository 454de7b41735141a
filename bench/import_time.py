"""How long `import assay` takes: the median over fresh processes, with what NumPy and ml_dtypes alone take."""

import argparse
import statistics
import subprocess
import sys

CODE = """
from time import perf_counter
start = perf_counter()
import numpy, ml_dtypes
base = perf_counter()
import assay
end = perf_counter()
print((base - start) * 1000, (end - start) * 1000)
"""


def measure() -> tuple[float, float]:
    """Milliseconds in one fresh process: NumPy and ml_dtypes, and these with assay."""
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
        f" of which numpy and ml_dtypes {statistics.median(base):.1f} ms"
        f" (medians of {runs} processes; {min(total):.1f} to {max(total):.1f} ms)"
    )


if __name__ == "__main__":
    main()
