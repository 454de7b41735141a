"""Faults on purpose: each breaks one thing, and the sweep must say which. They show that its reports can fail.

A fault is written KIND or KIND:OP. It patches Assay within one process of a sweep and nowhere else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast
from unittest.mock import patch

from assay.errors import CompileFailed, NotFound, hint_for
from assay.evidence.records import Record
from assay.evidence.records.schema import Status
from assay.evidence.sweep import broken

OP = "aten.relu.default"
"""The op that is broken where none is named."""
_WORDS = "broken on purpose"

Patch = AbstractContextManager[Any]


@dataclass(frozen=True, slots=True)
class Only:
    """What a fault of the native target needs: an op that it breaks, frozen weights or not, a model that has it."""

    op: str
    frozen: bool = False
    model: str = "Mnist"


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault: how it is made for an op, and what a sweep has to say of it."""

    doc: str
    make: Callable[[str], Patch]
    status: Status
    stage: str
    names_op: bool = False
    """Whether the op must be named, as the cause's or as the one that ran elsewhere."""
    error: str = ""
    """What the cause's error must be; else what is said must be the fault's own words, where the fault says some."""
    component: str = ""
    """The part of the compiler that must be blamed."""
    only: Only | None = None
    """Where the fault can be: in the native target alone, and what else it needs."""

    def misreported(self, record: Record, op: str) -> str:
        """What a record says wrongly about this fault; empty if it is right."""
        cause = record.cause
        if (record.status, record.stage) != (self.status, self.stage):
            return f"{record.status} at {record.stage} instead of {self.status} at {self.stage}"
        if self.names_op and op not in _named(record):
            return f"the op {op} is not named"
        if self.component and (cause is None or cause.component != self.component):
            return f"{cause.component if cause else 'nothing'} is blamed instead of {self.component}"
        if cause is not None and cause.stage != self.stage:
            return f"the cause's stage is {cause.stage}"
        if cause is not None and not (cause.error == self.error or _WORDS in cause.detail):
            return f"the cause is {cause.error}: {cause.detail}"
        return ""


def _named(record: Record) -> list[str]:
    """The ops that a record holds something against."""
    cause = [record.cause.op] if record.cause is not None else []
    return [*cause, *(use.op for use in record.ops if use.remaining)]


@contextmanager
def injected(fault: str) -> Generator[None]:
    """Inside, the fault is there; an empty text is none."""
    kind, _, op = fault.partition(":")
    with find_fault(kind).make(op or op_of(kind)) if fault else nullcontext():
        yield


def op_of(kind: str) -> str:
    """The op that a fault breaks where none is named."""
    only = find_fault(kind).only
    return OP if only is None else only.op


def options_for(fault: str) -> dict[str, Any]:
    """The options of `torch.compile` that a fault needs; an empty text is none."""
    only = find_fault(fault.partition(":")[0]).only if fault else None
    return {"frozen": True} if only is not None and only.frozen else {}


def find_fault(kind: str) -> Fault:
    """The fault of that kind; NotFound if there is none."""
    if kind not in FAULTS:
        raise NotFound(f"there is no fault '{kind}'", hint=hint_for(kind, FAULTS))
    return FAULTS[kind]


def _raising(place: str) -> Callable[[str], Patch]:
    """A function that raises wherever it is called."""

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{place.rpartition('.')[2]} is {_WORDS}")

    return lambda op: patch(place, broken)


def _in_eager(op: str) -> Patch:
    from assay.evidence.sweep.subjects import Subject

    step = Subject.step

    def broken(self: Subject, call: Callable[..., Any]) -> Any:
        if call is self.module:
            raise RuntimeError(f"eager is {_WORDS}")
        return step(self, call)

    return patch.object(Subject, "step", broken)


def _rule(change: Callable[[Any, Any, Any], Any]) -> Callable[[str], Patch]:
    """The op's lowering with another result: `change` is given the builder, the rule's own result, and the call."""

    def make(op: str) -> Patch:
        from assay.frontends.torch import registry

        rule = registry.rule_for(op)
        if rule is None:
            raise NotFound(f"{op} has no lowering to break")

        def broken(b: Any, call: Any, *args: Any, **kwargs: Any) -> Any:
            return change(b, rule(b, call, *args, **kwargs), call)

        return _entered(op, broken)

    return make


def _entered(op: str, rule: Any) -> Patch:
    from assay.frontends.torch import registry

    return patch.dict(cast(Any, registry)._TABLE, {op: rule})


def _off_by_a_hundredth(b: Any, result: Any, call: Any) -> Any:
    return b.mul(result, b.constant(1.01, b.dtype(result)))


def _not_a_number(b: Any, result: Any, call: Any) -> Any:
    return b.mul(result, b.constant(float("nan"), b.dtype(result)))


def _other_dtype(b: Any, result: Any, call: Any) -> Any:
    from assay.ir import dtypes

    return b.cast(result, dtype=dtypes.f64)


def _failing_rule(b: Any, result: Any, call: Any) -> Any:
    raise RuntimeError(f"the lowering is {_WORDS}")


def _other_shape(op: str) -> Patch:
    """The core op of the same name, with a shape rule that makes the last axis too long."""
    from assay.ops import CORE

    definition = CORE[op.split(".")[1]]

    def broken(*facts: Any, **attrs: Any) -> Any:
        rule: Any = definition.shape
        return [(*shape[:-1], shape[-1] + 1) for shape in rule(*facts, **attrs)]

    return patch.dict(CORE.table, {definition.name: replace(definition, shape=broken)})


@contextmanager
def _without_rule(op: str) -> Generator[None]:
    from assay.frontends.torch import registry

    table: dict[str, Any] = cast(Any, registry)._TABLE
    with patch.dict(table):
        table.pop(op)
        yield


def _running(act: Callable[[Any], Any]) -> Callable[[str], Patch]:
    """The op run by torch, and something that happens to its result then."""

    @contextmanager
    def make(op: str) -> Generator[None]:
        from assay.frontends.torch import dialect

        function = dialect.function_of

        def broken(target: str) -> Any:
            found = function(target)

            def acting(*args: Any, **kwargs: Any) -> Any:
                return act(found(*args, **kwargs))

            return acting if target == op else found

        with _without_rule(op), patch.object(dialect, "function_of", broken):
            yield

    return make


def _fail(result: Any) -> Any:
    raise RuntimeError(f"the kernel is {_WORDS}")


def _kill(result: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _segfault(result: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(result: Any) -> Any:
    while True:
        time.sleep(1)


def _hoard(result: Any) -> Any:
    hoard: list[Any] = []
    while True:
        hoard.append(bytearray(os.urandom(1 << 20)) * 64)
        time.sleep(0.01)


def _target(changed: Callable[[Any, str], None]) -> Callable[[str], Patch]:
    """The target that the backend is asked for, changed."""

    @contextmanager
    def make(op: str) -> Generator[None]:
        from assay.evidence.sweep import attribution
        from assay.runtime.targets import make_chain
        from assay.runtime.torch import backend as torch_backend

        def broken(*arguments: Any) -> Any:
            chain = make_chain(*arguments)
            changed(chain[0], op)
            return chain

        def beside_the_oracle(*arguments: Any) -> Any:
            return broken(*arguments) if len(make_chain(*arguments)) > 1 else make_chain(*arguments)

        with (
            patch.object(torch_backend, "make_chain", broken),
            patch.object(attribution, "make_chain", beside_the_oracle),
        ):
            yield

    return make


def _refuse(target: Any, op: str) -> None:
    from assay.targets.base import Support

    support = target.support

    def broken(node: Any) -> Support:
        return Support(False, f"{op} is {_WORDS}") if node.origin.op == op else support(node)

    target.support = broken


def _compile_fails(error: type[Exception]) -> Callable[[Any, str], None]:
    def change(target: Any, op: str) -> None:
        def broken(*_: Any, **_named: Any) -> Any:
            raise error(f"the compiler is {_WORDS}")

        target.compile = broken

    return change


_FELL_BACK: tuple[Status, str] = ("pass_with_fallback", "accuracy")
_WRONG: tuple[Status, str] = ("fail_accuracy", "accuracy")
_AT_START: tuple[Status, str] = ("baseline_failed", "build")

FAULTS: dict[str, Fault] = {
    "build": Fault("the model cannot be built", _raising("assay.evidence.sweep.subjects.find"), *_AT_START),
    "eager": Fault("torch itself cannot run the model", _in_eager, "baseline_failed", "baseline"),
    "trace": Fault(
        "torch's tracer fails", _raising("assay.runtime.torch.backend.aot_autograd"), "fail_import", "trace"
    ),
    "import": Fault(
        "a graph cannot be read", _raising("assay.runtime.torch.backend.import_fx"), "fail_import", "import"
    ),
    "lower": Fault("a graph cannot be lowered", _raising("assay.runtime.pipeline.lower"), "fail_lower", "lower"),
    "compile": Fault("the target's compiler crashes", _target(_compile_fails(RuntimeError)), "fail_compile", "compile"),
    "no compiler": Fault("the target cannot compile", _target(_compile_fails(CompileFailed)), *_FELL_BACK, True),
    "refused": Fault("the target refuses the op", _target(_refuse), *_FELL_BACK, True),
    "no rule": Fault("the op has no lowering", _without_rule, *_FELL_BACK, True),
    "rule": Fault("the op's lowering fails", _rule(_failing_rule), *_FELL_BACK, True),
    "dtype": Fault("the op's lowering has the wrong dtype", _rule(_other_dtype), *_FELL_BACK, True),
    "shape": Fault("the shape rule of the core op is wrong", _other_shape, *_FELL_BACK, True),
    "lowering": Fault(
        "the op's lowering is off by a hundredth",
        _rule(_off_by_a_hundredth),
        *_WRONG,
        True,
        "inaccurate",
        component="lowering",
    ),
    "nan": Fault("the op's lowering gives NaN", _rule(_not_a_number), *_WRONG, True, "NaN", component="lowering"),
    "kernel": Fault(
        "the kernel of the op gives the wrong sign",
        broken.negated_kernel("max_pool"),
        *_WRONG,
        True,
        "inaccurate",
        component="kernel",
        only=Only("aten.max_pool2d_with_indices.default"),
    ),
    "packed kernel": Fault(
        "the kernel for packed weights gives the wrong sign",
        broken.negated_kernel("cpu.conv_panels"),
        *_WRONG,
        True,
        "inaccurate",
        component="kernel cpu.conv_panels",
        only=Only("aten.convolution.default", frozen=True),
    ),
    "fused loop": Fault(
        "a loop over several nodes is off by a hundredth",
        broken.wrong_loop,
        *_WRONG,
        True,
        "inaccurate",
        component="fusion",
        only=Only(OP),
    ),
    "folded norm": Fault(
        "norms are folded into weights wrongly",
        broken.wrong_norms,
        *_WRONG,
        True,
        "inaccurate",
        component="pass fold_norms",
        only=Only("aten._native_batch_norm_legit_no_training.default", frozen=True, model="ResNet18"),
    ),
    "pass": Fault(
        "a standard pass changes what a graph computes",
        broken.wrong_pass,
        *_WRONG,
        True,
        "inaccurate",
        component="pass simplify",
    ),
    "transfer": Fault(
        "data does not arrive on the device as it was",
        _target(broken.damaged_transfers),
        *_WRONG,
        error="inaccurate",
        component="transfer",
        only=Only(OP),
    ),
    "run": Fault("the op's kernel raises", _running(_fail), "fail_run", "run", True),
    "kill": Fault("the process is killed while the op runs", _running(_kill), "crash", "run", error="SIGKILL"),
    "segfault": Fault("the op's kernel reads where it must not", _running(_segfault), "crash", "run", error="SIGSEGV"),
    "hang": Fault("the op's kernel never ends", _running(_hang), "timeout", "run", error="timeout"),
    "memory": Fault("the op's kernel takes all memory", _running(_hoard), "crash", "run", error="out of memory"),
}
"""Every kind of fault."""
