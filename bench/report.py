"""How long `assay report` takes over 400 models on 4 targets, with about 60 ops and 80 configurations each.

The records are made up, but have everything that real ones have. Prints the time of each part, the number of files and
their size, and the process's peak memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.evidence.records import Case, Cause, Configuration, Environment, OpUse, Output, Record, Speed, Transfers
from assay.evidence.records.causes import normalised
from assay.evidence.records.merge import write as write_records
from assay.evidence.records.schema import Status
from assay.evidence.report import gathered, make_report, uncollected, write

TARGETS = ("cpu", "reference", "ttnn", "vulkan")
FAMILIES = ("albert/albert", "Mnist", "resnet", "swin_v2", "openai/whisper", "facebook/musicgen", "U-Net", "gpt")
VERBS = ("add", "mul", "view", "permute", "convolution", "addmm", "softmax", "gelu", "expand", "slice", "cat", "mean")
FAILURES = (
    ("lower", "frontends.torch", "LowerFailed", "{op} with a symbolic stride of {number}"),
    ("compile", "targets.ttnn.tiles", "CompileFailed", "a shard of {number} bytes does not fit into L1 of {number}"),
    ("compile", "targets.cpu.emit", "CompileFailed", "cc ended with code {number} for segment {number}"),
    ("run", "runtime.session", "RunFailed", "{op} got index {number} of {number}"),
    ("accuracy", "targets.vulkan.shaders", "Differs", "{op} is {number} from the exact value, {number} allowed"),
    ("run", "", "Killed", "signal {number} after {number} s in worker {number}"),
    ("run", "", "Killed", "signal {number} after {number} s in thread {number}"),
    ("import", "", "", "the tracer said nothing for {number} s"),
)
STATUS: dict[str, Status] = {
    "import": "fail_import", "lower": "fail_lower", "compile": "fail_compile", "run": "fail_run",
    "accuracy": "fail_accuracy",
}  # fmt: skip


def records(models: int, targets: Sequence[str], ops: int, configurations: int, seed: int = 0) -> Iterator[Record]:
    """Made-up records: every model on every target, an earlier run of some, and ops that ran by themselves."""
    dice = random.Random(seed)
    names = [f"aten.{VERBS[place % len(VERBS)]}_{place // len(VERBS)}.default" for place in range(ops * 2)]
    ways = {
        op: [
            Configuration(op, ({"dtype": "f32", "shape": [dice.randint(1, 64), 2**place]}, place), {"dim": -1})
            for place in range(24)
        ]
        for op in names
    }
    users: dict[tuple[str, str], list[str]] = {}
    for number in range(models):
        name = f"{FAMILIES[number % len(FAMILIES)]}-{number}"
        chosen = dice.sample(names, min(ops, len(names)))
        used = [dice.choice(ways[dice.choice(chosen)]) for _ in range(configurations)]
        for each in used[:4]:
            users.setdefault((each.op, each.text), []).append(name)
        for target in targets:
            for month in (10, 11) if number % 10 == 0 else (11,):
                yield _model(dice, name, target, chosen, used, f"2026-{month}-0{1 + number % 9}T12:00:00Z")
    for (op, text), found in sorted(users.items()):
        for target in targets[:2]:
            yield _op(dice, op, text, target, tuple(sorted(set(found))))


def _model(
    dice: random.Random, name: str, target: str, ops: Sequence[str], used: Sequence[Configuration], date: str
) -> Record:
    case = Case(kind="model", name=name, target=target, mode="train" if name.startswith("Mnist") else "eval")
    environment = Environment(
        date=date, command="assay sweep --size full", commit="0123456789ab", machine="made up", threads=2, workers=1
    )
    bad = dice.random() < 0.18
    cause = _cause(dice, dice.choice(ops)) if bad else None
    fallback = dice.random() < 0.3
    uses = tuple(_use(dice, op, target, fallback and place % 7 == 0) for place, op in enumerate(ops))
    green: Status = "pass_with_fallback" if fallback else "pass"
    eager = 10 ** dice.uniform(-3, 0)
    allowed = 10 ** dice.uniform(-7, -4)
    wrong = cause is not None and cause.stage == "accuracy"
    error = allowed * 10 ** (dice.uniform(0.1, 3) if wrong else dice.uniform(-3, -0.01))
    output = Output(
        name="logits", type="f32[1, 1000]", ok=not wrong, count=1000, max_abs=error, max_rel=error * 3, max_ulp=12.0,
        snr=90.0, pcc=1 - error / 100, noise=allowed / 4, allowed=allowed, top1=1.0, top5=0.998,
    )  # fmt: skip
    ran = cause is None or cause.stage == "accuracy"
    return Record(
        case=case,
        environment=environment,
        status=STATUS[cause.stage] if cause else green,
        stage=cause.stage if cause else "accuracy",
        cause=cause,
        graphs=1,
        inputs={"x": "f32[1, 3, 224, 224]"},
        parameters=dice.randint(10**4, 10**8),
        ops=uses,
        configurations=tuple(used),
        transfers=Transfers(count=dice.randint(0, 40), bytes=dice.randint(0, 10**7)) if ran else None,
        outputs=(output,) if ran else (),
        speed=Speed(
            trace=1.0, importing=0.1, lowering=0.2, compiling=3.0, cold=4.3, warm=0.2, first_run=eager, runs=20,
            median=eager / 10 ** dice.uniform(-0.4, 0.9), p95=eager, eager_median=eager, peak_memory=10**9,
        ) if ran else Speed(),
        reproducer=f"reproducers/{target}-{dice.randint(1, 99)}.py" if cause else "",
        reproduced=True if cause else None,
    )  # fmt: skip


def _use(dice: random.Random, op: str, target: str, elsewhere: bool) -> OpUse:
    count = dice.randint(1, 120)
    left = min(count, 3) if elsewhere else 0
    core = (op.split(".")[1].rpartition("_")[0],)
    reasons = (f"{target} takes no strides of 0",) if left else ()
    ran_on = (target, "reference") if left else (target,)
    return OpUse(op, count, converted=count - left, fallback=left, core=core, targets=ran_on, reasons=reasons)


def _cause(dice: random.Random, op: str) -> Cause:
    stage, component, error, text = dice.choice(FAILURES)
    said = text.replace("{op}", op).replace("{number}", str(dice.randint(2, 10**6)))
    return Cause(stage, component, error, normalised(said), op if "{op}" in text else "", detail=said)


def _op(dice: random.Random, op: str, text: str, target: str, models: tuple[str, ...]) -> Record:
    case = Case(kind="op", name=op, target=target, configuration=text)
    cause = _cause(dice, op) if dice.random() < 0.05 else None
    output = Output(name="out", type="f32[8]", ok=True, count=8, max_abs=1e-7, allowed=1e-6, pcc=1.0)
    return Record(
        case=case,
        environment=Environment(date="2026-11-09T00:00:00Z"),
        status=STATUS[cause.stage] if cause else "pass",
        stage=cause.stage if cause else "accuracy",
        cause=cause,
        outputs=() if cause else (output,),
        models=models,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=400)
    parser.add_argument("--output", type=Path, help="keep the report here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, uncollected():
        file, folder = Path(scratch) / "records.jsonl", given.output or Path(scratch) / "report"
        write_records(file, records(given.models, TARGETS, 60, 80))
        started, used = time.perf_counter(), time.process_time()
        found = gathered([file], folder)
        read = time.perf_counter()
        report = make_report(found, "Made-up models")
        tables = time.perf_counter()
        files = write(folder, report)
        ended = time.perf_counter()
        size = sum((folder / name).stat().st_size for name in files)
        megabytes = file.stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    broken = [check.name for check in report.checks if not check.ok]
    print(f"{given.models} models on {len(TARGETS)} targets, {len(found.records):,} records, {megabytes:.0f} MB")
    print(f"read {read - started:.1f} s, tables {tables - read:.1f} s, files {ended - tables:.1f} s", end="; ")
    print(f"all {ended - started:.1f} s ({time.process_time() - used:.1f} s of CPU), peak {peak:.0f} MiB")
    print(f"{len(report.pages):,} pages, {len(files):,} files, {size / 1e6:.0f} MB", end="; ")
    print(f"self-checks that fail: {broken or 'none'}")


if __name__ == "__main__":
    main()
