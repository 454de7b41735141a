"""What becomes of the zoo on a Tenstorrent card: every model put to the library, op by op.

    python tools/ttnnzoo.py --size full --out FILE [--mode train] [MODEL …]

Weights are allocated, not filled, and results are zeros. With `--numbers model` the device model computes them, from
weights of a seed, and the line tells the lowest PCC of an output with torch's. FILE gets a line of JSON for each model;
models that it has a line of are left out, so that a run can be gone on with. The smallest models come first. Of a model
that dies or takes too long, the line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.processes import Send, Worker, WorkerFailed, WorkerLimits
from assay.targets.ttnn.numbers import ENVIRONMENT, NUMBERS

TARGET = "ttnn,cpu"
ATTEMPT = "runs on the target"
"""How the warning reads that a node which was planned for the card went elsewhere."""


# --- in the worker


def service() -> Callable[[Any, Send], Any]:
    """Answers with what became of a model, {"model": its name, "size": …, "mode": …}."""
    return lambda request, send: told(**request)


def told(model: str, size: Any, mode: Any, computed: bool = False) -> dict[str, Any]:
    """The line of one model: of a call, or of a step of training up to the gradients. If results are `computed`, the
    model has weights, and the line tells how right they are."""
    import torch

    from assay.evidence.sweep.accounts import transfers
    from assay.evidence.sweep.subjects import Trainee
    from assay.runtime.torch.backend import Options
    from assay.runtime.torch.explain import explained
    from assay.targets.ttnn.library import open_library
    from assay.zoo.torch import find

    entry, trains = find(model), mode == "train"
    if entry.unavailable:
        return {"failed": entry.unavailable}
    torch.compiler.reset()  # which holds programs of the models before, and so their weights on the card
    started = time.perf_counter()
    made = entry.build(size) if computed else entry.empty(size)
    inputs = entry.example(made, size=size, mode=mode)
    module = Trainee(made, entry.loss).train() if trains else made.eval().requires_grad_(False)
    options = Options(target=TARGET, frozen=not trains, cache=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        seen, outcome = watched(module, inputs, options, trains)
        if seen.breaks:  # what only a first call does (anchors made, hooks installed) is done after an eager one
            said.clear()
            module(**inputs)
            seen, outcome = watched(module, inputs, options, trains)
    found = explained(seen)
    library = open_library()
    assert not isinstance(library, str)
    notes = [note for graph in seen.graphs for note in graph.program.notes()]
    away = [each for each in found.ops if each.opaque or each.fallback]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "library": f"ttnn {library.about().version}",
        "card": library.mock.name,
        "graphs": len(found.graphs),
        "breaks": [[each.code, each.reason, each.count] for each in found.breaks],
        "aten": sum(each.count for each in found.ops),
        "unique": len(found.ops),
        "remaining": sum(each.opaque + each.fallback for each in away),
        "left": {each.op: [each.opaque + each.fallback, *each.reasons] for each in away},
        "refused": sorted({words for each in said if ATTEMPT in (words := str(each.message).partition("\n")[0])}),
        "crossings": transfers(graph.program.plan for graph in seen.graphs).count,
        "memory": [list(row) for note in notes for row in note.rows if row[0] == "DRAM"],
        **({"pcc": correlation(entry.comparable, outcome, seeded(module, **inputs))} if computed else {}),
        "seconds": round(time.perf_counter() - started, 1),
    }


def watched(module: Any, inputs: Mapping[str, Any], options: Any, trains: bool) -> tuple[Any, Any]:
    """What comes to light while a model is called once, and what it gives."""
    from assay.runtime.torch.watch import CallArguments, watching

    with watching(module, options=options, dynamic=False, train=trains or None, backward=trains) as (seen, run):
        outcome = seeded(run, CallArguments((), inputs), fused=True)
    return seen, outcome


def seeded(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a call gives that draws the same random numbers each time."""
    import torch

    torch.manual_seed(1)
    return call(*args, **options)


def correlation(comparable: Callable[[Any], Any], outcome: Any, right: Any) -> float | None:
    """The lowest PCC of an output with torch's; 0 for one of another shape, None if none can be told."""
    from assay.evidence.compare.arrays import signal
    from assay.evidence.sweep.subjects import named_arrays

    found, wanted = (named_arrays(comparable(each)) for each in (outcome, right))
    pairs = [(found[name], wanted[name]) for name in wanted]
    known = [signal(one, other).pcc if one.shape == other.shape else 0.0 for one, other in pairs]
    return min((each for each in known if each is not None), default=None)


# --- in the tool

Line = Mapping[str, Any]
"""What is told of one model."""


def lines(path: Path) -> dict[str, Line]:
    """What a file tells, by model."""
    found = (json.loads(line) for line in path.read_text().splitlines()) if path.exists() else ()
    return {each["model"]: each for each in found}


def compiled(line: Line) -> bool:
    """The model compiled."""
    return "failed" not in line


def taken(line: Line) -> bool:
    """The library took every call that was planned."""
    return compiled(line) and not line["refused"]


def whole(line: Line) -> bool:
    """Every aten op is computed on the card: no target and no graph break brings it elsewhere."""
    return taken(line) and not line["remaining"] and not line["breaks"]


def still(line: Line) -> bool:
    """It is on the card, and a run moves its inputs and its results alone."""
    return taken(line) and not line["crossings"] and not line["breaks"]


MEASURES: Mapping[str, Callable[[Line], bool]] = {
    "compiled": compiled,
    "taken by the library from the first op to the last": taken,
    "with no aten op left to the host": whole,
    "in which a run moves nothing but inputs and results": still,
}
"""What may hold of a line, in words."""


def summary(found: Sequence[Line]) -> str:
    """How many models there are, and of how many each measure holds."""
    rows = [f"{sum(map(holds, found))} {words}" for words, holds in MEASURES.items()]
    return "\n".join([f"{len(found)} models:", *rows])


def main() -> None:
    """Put models to the library."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", help="only these")
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--mode", choices=("eval", "train"), default="eval")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--numbers", choices=NUMBERS, default="none", help="who computes; what zeros lead astray needs it"
    )
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for a model")
    parser.add_argument("--memory", type=float, default=18.0, help="GiB that a model may take here")
    given = parser.parse_args()
    os.environ[ENVIRONMENT] = given.numbers
    computed = given.numbers != "none" and given.mode == "eval"
    from assay.zoo.torch import MODELS, find

    limits = WorkerLimits(seconds=given.timeout, resident=int(given.memory * 2**30))
    with Worker(f"{Path(__file__).resolve()}:service", limits=limits) as worker:
        done = lines(given.out)
        able = [name for name in MODELS if given.mode in find(name).modes]
        for name in given.models or sorted(able, key=lambda each: find(each).count):
            if name in done:
                continue
            try:
                line = worker.ask(
                    {"model": name, "size": given.size, "mode": given.mode, "computed": computed}, what=name
                )
            except WorkerFailed as error:
                line = {"failed": error.message}
            with given.out.open("a") as file:
                about = {"model": name, "size": given.size, "mode": given.mode, "numbers": given.numbers}
                file.write(json.dumps({**about, **line}) + "\n")
            print(name, line.get("failed") or f"{line['remaining']} of {line['aten']} left", file=sys.stderr)
    print(summary(list(lines(given.out).values())))


if __name__ == "__main__":
    main()
