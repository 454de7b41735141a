"""Small records to make reports of."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from assay.evidence.records import (
    Case,
    Cause,
    Configuration,
    Environment,
    OpUse,
    Output,
    Record,
    Records,
    Speed,
    Transfers,
)

ROOT = Path(__file__).parents[3]
EVIL = '<script>alert("x")</script> & [a](javascript:1)|`*_'


def cause(
    op: str = "aten.foo", message: str = "no rule for #", component: str = "frontends.torch", **more: str
) -> Cause:
    return Cause(
        **{"stage": "lower", "component": component, "error": "LowerFailed", "message": message, "op": op} | more
    )


def output(name: str = "y", error: float = 1e-7, allowed: float = 1e-6, **more: Any) -> Output:
    return Output(
        **{"name": name, "type": "f32[2]", "ok": error <= allowed, "max_abs": error, "allowed": allowed} | more
    )


def model(name: str, target: str = "cpu", date: str = "2026-11-02T00:00:00Z", **more: Any) -> Record:
    case = Case(**{"kind": "model", "name": name, "target": target} | more.pop("case", {}))
    plain = {"status": "pass", "stage": "accuracy", "outputs": (output(),)}
    return Record(**{"case": case, "environment": Environment(date=date), **plain} | more)


def failed(name: str, why: Cause | None = None, target: str = "cpu", **more: Any) -> Record:
    return model(
        name, target, **{"status": "fail_lower", "stage": "lower", "cause": why or cause(), "outputs": ()} | more
    )


def op(name: str, text: str, models: tuple[str, ...], why: Cause | None = None, target: str = "cpu") -> Record:
    return Record(
        case=Case(kind="op", name=name, target=target, configuration=text),
        environment=Environment(date="2026-11-02T00:00:00Z"),
        status="fail_lower" if why else "pass",
        stage="lower" if why else "accuracy",
        cause=why,
        models=models,
        outputs=() if why else (output(error=3e-7, pcc=0.9999999, max_ulp=2.0),),
    )


VIEW = Configuration("aten.view", ({"dtype": "f32", "shape": [2, 3]}, [6]), count=3, converted=2, fallback=1)

SMALL = Records(
    (
        model(
            "albert/albert-base v2",
            status="pass_with_fallback",
            ops=(
                OpUse(
                    "aten.view", 3, converted=2, fallback=1, core=("reshape",), targets=("cpu",), reasons=("strides",)
                ),
                OpUse("aten.add", 4, converted=3, removed=1),
            ),
            configurations=(VIEW,),
            transfers=Transfers(2, 4096),
            outputs=(output(pcc=0.99999999, top1=0.9999), output("z", error=9.999e-7)),
            gradients=(output("w.grad"),),
            gradient_count=12,
            gradients_right=12,
            speed=Speed(median=0.02, eager_median=0.05, cold=2.0),
            inputs={"ids": "i64[1, 8]"},
        ),
        model("albert/albert-base v2", date="2026-10-01T00:00:00Z", speed=Speed(median=0.04, eager_median=0.05)),
        failed("gpt", reproducer="reproducers/gpt.py", reproduced=True, ops=(OpUse("aten.foo", 1, opaque=1),)),
        failed("gpt", target="ttnn"),
        failed("t5", cause(component="", message="worker # ended", op="", error="Killed")),
        failed("t6", cause(component="", message="worker # ended early", op="", error="Killed")),
        model("musicgen", status="skipped", stage="build", outputs=(), cause=cause("", "too large", stage="build")),
        op("aten.view", VIEW.text, ("albert/albert-base v2",)),
        op("aten.foo", "f32[3]", ("gpt",), cause(message="another thing")),
        failed("gpt", case={"fault": "kill the worker"}),
    )
)


def synthetic(models: int = 12, targets: tuple[str, ...] = ("cpu", "ttnn")) -> Records:
    """Records as `bench/report.py` makes them."""
    found = runpy.run_path(str(ROOT / "bench" / "report.py"))["records"](models, targets, 10, 14)
    return Records(tuple(found))
