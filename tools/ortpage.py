"""Write docs/onnxruntime.md, what became of each name of ONNX Runtime; `--check` only says whether it is right."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.runtime.ort.errors import EXCEPTIONS, NeverRaised
from assay.runtime.ort.names import CLASSES, MODULE, NameRow, Standing

PATH = Path(__file__).parent.parent / "docs" / "onnxruntime.md"

HEAD = """\
# Programs written for ONNX Runtime

Generated from `src/assay/runtime/ort/names.py` by `python tools/ortpage.py`; do not edit.

`import assay as ort` offers ONNX Runtime's Python API, so that programs which are written for it run unchanged:

```python
import sys

import assay

sys.modules["onnxruntime"] = assay  # before anything imports onnxruntime
```

rapidocr, silero-vad, magika, Moonshine and Piper run this way and give what they give with ONNX Runtime
(`tests/models/test_programs.py`).

Of its {total} public names {done} are **done**. {empty} are **accepted, without meaning**: they tune what Assay does
not have, and results are the same without them. {refused} **raise** `assay.errors.Unsupported` when they are used;
importing them works. Nothing is ignored silently.

- `SessionOptions` has Assay's own settings (`target`, `mode`, `decomposed`, `optimize`, `limits`) beside those of ONNX
  Runtime; all are arguments and attributes. A value of another kind raises `BadArgument`. A session keeps a copy.
- A `SessionOptions` that ONNX Runtime itself made is taken over field by field. What it does not give out is lost: free
  dimensions, initializers, configuration entries and libraries of custom ops. Its providers raise.
- `run` takes arrays of exactly the model's dtype, as ONNX Runtime does, and lists. It also takes Python's and NumPy's
  numbers for tensors without dims, and arrays of other libraries.
- Dims that the model calls by one name may differ where no op minds, as in ONNX Runtime; else the error names them.
- `providers`: `CPUExecutionProvider` is the target `cpu`, `reference` the oracle. Providers of other hardware are
  passed over with a warning; an unknown name raises.
- `enable_profiling` writes a Chrome trace like ONNX Runtime's. Each node is computed by itself then; what is fused
  otherwise shows as its parts. One node of the model may be several events (`core_op` tells them apart).
"""

TITLES = {Standing.DONE: "done", Standing.EMPTY: "without meaning", Standing.REFUSED: "raises"}


def table() -> str:
    """The text of docs/onnxruntime.md."""
    every = [*MODULE.values(), *(row for rows in CLASSES.values() for row in rows.values())]
    counts = Counter(row.standing for row in every)
    numbers = {standing.name.lower(): counts[standing] for standing in Standing}
    lines = [HEAD.format(total=len(every), **numbers)]
    lines += ["## The module", "", *_rows(MODULE), ""]
    for owner, rows in CLASSES.items():
        lines += [f"## `{owner}`", "", *_rows(rows), ""]
    lines += ["## Exceptions", "", *_exceptions()]
    return "\n".join(lines) + "\n"


def _rows(rows: Mapping[str, NameRow]) -> Iterator[str]:
    yield "| name | here | |"
    yield "|---|---|---|"
    for name, row in rows.items():
        yield f"| `{name}` | {TITLES[row.standing]} | {row.note} |"


def _exceptions() -> Iterator[str]:
    yield "`capi.onnxruntime_pybind11_state` has ONNX Runtime's names. Each is the error that Assay raises instead,"
    yield "and an `assay.AssayError`. An op that fails while a program runs raises `Fail`, always."
    yield ""
    yield "| name | here |"
    yield "|---|---|"
    for name, error in EXCEPTIONS.items():
        yield f"| `{name}` | {'never raised' if error is NeverRaised else f'`{error.__name__}`'} |"


def main() -> int:
    """0 if the file is, or has been made, right."""
    text = table()
    if "--check" in sys.argv[1:]:
        return 0 if PATH.exists() and PATH.read_text() == text else 1
    PATH.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
