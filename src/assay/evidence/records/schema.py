"""What a record says. `docs/records.md` is made from these definitions.

Times are in seconds, memory in bytes. A figure that was not measured, or that is no finite number, is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from msgspec import Struct, field

FORMAT = 1
"""The version of the records; a reader refuses others."""

Kind = Literal["model", "op"]
Mode = Literal["eval", "train"]
Size = Literal["small", "full"]
Status = Literal[
    "pass",
    "pass_with_fallback",
    "fail_accuracy",
    "fail_run",
    "fail_compile",
    "fail_lower",
    "fail_import",
    "unsupported",
    "skipped",
    "timeout",
    "crash",
    "baseline_failed",
]

STATUSES: Mapping[Status, str] = {
    "pass": "ran on the target alone, and every output is within the noise floor",
    "pass_with_fallback": "the same, but a part ran elsewhere: on a later target of the chain, or in torch itself "
    "(random draws, what lies between two graphs)",
    "fail_accuracy": "ran, and an output is farther from the exact one than rounding explains",
    "fail_run": "the compiled model failed while it ran",
    "fail_compile": "the target could not compile the model",
    "fail_lower": "an op could not be turned into core ops",
    "fail_import": "the graph could not be traced or read",
    "unsupported": "the target is not there, or takes no such case",
    "skipped": "somebody chose not to run it",
    "timeout": "took longer than the time limit",
    "crash": "the process died, or took more memory than the limit",
    "baseline_failed": "torch alone could not build or run the model, so that there is nothing to compare with",
}
"""Every status and what it means."""

GREEN: tuple[Status, ...] = ("pass", "pass_with_fallback")
"""The statuses that count as passes."""

NOT_TRIED: tuple[Status, ...] = ("unsupported", "skipped", "baseline_failed")
"""The statuses that say nothing about the compiler."""

STAGES: Mapping[str, str] = {
    "build": "the model and its inputs are made",
    "baseline": "torch runs it: eagerly, and in f64",
    "trace": "torch's own tracer makes aten graphs of it",
    "import": "Assay reads the graphs",
    "lower": "aten ops become core ops",
    "compile": "the target compiles its segments",
    "run": "the compiled model runs",
    "accuracy": "the outputs are judged",
}
"""The stages of a case in their order."""

STATUS_AT: Mapping[str, Status] = {
    "build": "baseline_failed",
    "baseline": "baseline_failed",
    "trace": "fail_import",
    "import": "fail_import",
    "lower": "fail_lower",
    "compile": "fail_compile",
    "run": "fail_run",
    "accuracy": "fail_accuracy",
}
"""The status of a case that fails at a stage, unless it was a crash or took too long."""


class Case(Struct, frozen=True, order=True, omit_defaults=True):
    """What was tried. Two records of equal cases are two runs of one thing."""

    kind: Kind
    name: str
    """The model's name in the zoo, or the op's name."""
    target: str
    mode: Mode = "eval"
    size: Size = "full"
    dtype: str = "f32"
    configuration: str = ""
    """Of an op: its arguments as text."""
    fault: str = ""
    """What was broken on purpose."""


class Environment(Struct, frozen=True, omit_defaults=True):
    """Where and when a case ran."""

    date: str
    """When the sweep began or went on, in UTC, as ISO 8601 writes it."""
    command: str = ""
    commit: str = ""
    """Of Assay's source, with a `+` if it had been changed; empty where there is no repository."""
    versions: dict[str, str] = {}
    machine: str = ""
    threads: int | None = None
    workers: int | None = None
    """How many cases ran side by side; times of a run with several are not for comparison with other runs."""


class Cause(Struct, frozen=True, omit_defaults=True):
    """Why a case failed, from the stage and the frame that failed."""

    stage: str
    component: str = ""
    """The part of the compiler that the failing frame belongs to; empty if that is unknown."""
    error: str = ""
    """The class of the exception, the signal, or the kind of limit."""
    message: str = ""
    """What it said, with `#` for every number."""
    op: str = ""
    """The op that was under way; empty if that is unknown."""
    frame: str = ""
    """The innermost frame within Assay, as `file:function`."""
    detail: str = ""
    """What it said, unchanged."""
    where: str = ""
    """The node, value or source line."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells causes apart: all but the figures and places of one case."""
        return self.stage, self.component, self.error, self.op, self.message


class OpUse(Struct, frozen=True, omit_defaults=True):
    """One op of the model as torch hands it over: how many nodes there are, and what became of them."""

    op: str
    count: int
    converted: int = 0
    removed: int = 0
    opaque: int = 0
    fallback: int = 0
    core: tuple[str, ...] = ()
    """The core ops that run for it."""
    targets: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def remaining(self) -> int:
        """How many did not become core ops of the target that was asked for."""
        return self.opaque + self.fallback


class Configuration(Struct, frozen=True, omit_defaults=True):
    """One way in which a model uses an op: everything but the content of its tensors."""

    op: str
    args: tuple[Any, ...]
    """Plain values as they are; a tensor as `{"dtype": …, "shape": …}`, torch's own objects as `{"torch": …}`."""
    kwargs: dict[str, Any] = {}
    count: int = 1
    converted: int = 0
    removed: int = 0
    opaque: int = 0
    fallback: int = 0

    def tensors(self) -> Iterator[Mapping[str, Any]]:
        """The descriptions of tensors among the arguments, in their order."""
        for argument in (*self.args, *self.kwargs.values()):
            yield from _tensors(argument)

    @property
    def text(self) -> str:
        """The arguments as a reader likes them: `f32[1, 3, 224, 224], [2, 2], dim=1`."""
        named = [f"{name}={_argument(value)}" for name, value in self.kwargs.items()]
        return ", ".join([*map(_argument, self.args), *named])


def _tensors(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        for part in cast("list[Any]", value):
            yield from _tensors(part)
    elif isinstance(value, Mapping) and "shape" in value:
        yield cast("Mapping[str, Any]", value)


def _argument(value: Any) -> str:
    if isinstance(value, dict):
        plain = cast("dict[str, Any]", value)
        return str(plain["torch"]) if "torch" in plain else f"{plain['dtype']}{list(plain['shape'])}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_argument, cast('list[Any]', value)))}]"
    return repr(value)


class Transfers(Struct, frozen=True, omit_defaults=True):
    """Values that cross between targets in one run."""

    count: int
    bytes: int


class Output(Struct, frozen=True, omit_defaults=True):
    """One output (or gradient) against torch's in f64, and torch's own rounding as the noise floor."""

    name: str
    type: str
    """Such as `f32[1, 1000]`."""
    ok: bool
    complaint: str = ""
    count: int = 0
    max_abs: float | None = None
    max_rel: float | None = None
    max_ulp: float | None = None
    """In units of the output's own dtype, between the output and torch's eager one."""
    snr: float | None = None
    """Signal to noise in dB; null also where there is no noise at all."""
    pcc: float | None = None
    nan: int = 0
    inf: int = 0
    noise: float | None = None
    """How far torch's eager result is from the exact one; null where that is not known and eager's is the goal."""
    allowed: float | None = None
    """The largest error that rounding explains."""
    top1: float | None = None
    """The part of the rows whose largest element is where eager has it."""
    top5: float | None = None
    """The part of eager's five largest elements that are among the five largest, over all rows."""


class Speed(Struct, frozen=True, omit_defaults=True):
    """How long it took; the model alone is timed, never what prepares or checks it."""

    build: float | None = None
    trace: float | None = None
    """torch's part of the first preparation."""
    importing: float | None = None
    lowering: float | None = None
    compiling: float | None = None
    cold: float | None = None
    """The whole preparation with empty caches: trace, import, lowering, compilation."""
    warm: float | None = None
    """The same once more with filled caches."""
    first_run: float | None = None
    median: float | None = None
    p95: float | None = None
    runs: int = 0
    eager_median: float | None = None
    """torch's eager time, measured in turns with the compiled model's."""
    eager_p95: float | None = None
    others: float | None = None
    """The part of the machine that other processes used while these runs were timed."""
    peak_memory: int | None = None
    """The most memory that the process had from the first compilation on; eager's runs are timed within."""


def worded(status: str, verdict: str) -> str:
    """A status with the kind of verdict that a pass rests on, which is its first word."""
    kind = verdict.partition(" ")[0].rstrip(":")
    return f"{status} ({kind})" if kind else status


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known about one case in one run."""

    format: int = field(default_factory=lambda: FORMAT)  # a factory's value is always written
    case: Case
    environment: Environment
    status: Status
    stages: tuple[str, ...] = tuple(STAGES)
    """The stages that the case goes through."""
    stage: str
    """The last one that it reached; of a failure, the one that failed."""
    cause: Cause | None = None
    """Why it is not green."""
    notes: tuple[str, ...] = ()
    graphs: int = 0
    breaks: int = 0
    """How often torch left a graph or gave up compiling: what lies between graphs it runs itself. `notes` say where."""
    inputs: dict[str, str] = {}
    """The model's inputs by name, as `f32[1, 3, 224, 224]`."""
    parameters: int | None = None
    ops: tuple[OpUse, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    transfers: Transfers | None = None
    outputs: tuple[Output, ...] = ()
    """Of a training step: the loss."""
    gradients: tuple[Output, ...] = ()
    """The gradients that are farthest off for what rounding explains."""
    gradient_count: int = 0
    gradients_right: int = 0
    speed: Speed = Speed()
    metrics: dict[str, float] = {}
    """Task metrics of models with real weights."""
    models: tuple[str, ...] = ()
    """Of an op: the models that use this configuration."""
    verdict: str = ""
    """Of a pass that rests on more than eager's own rounding: `kink at` the ops whose choice rounding flips,
    `ill-conditioned at` the op that magnifies noise, or `noise`. docs/evidence.md tells how each is proved."""
    attribution: str = ""
    """Of a wrong result: the first value that is wrong."""
    reproducer: str = ""
    """A file that shows the failure by itself, relative to the records."""
    reproduced: bool | None = None
    """Whether that file was run and failed in the same way."""

    @property
    def green(self) -> bool:
        """True for a pass of either kind."""
        return self.status in GREEN

    @property
    def words(self) -> str:
        """The status; of a pass with a verdict with its kind, such as `pass (kink)`."""
        return worded(self.status, self.verdict)
