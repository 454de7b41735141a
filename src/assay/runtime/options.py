"""`SessionOptions`: Assay's own settings, and ONNX Runtime's beside them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

from assay.errors import BadArgument, hint_for
from assay.limits import DEFAULT, Limits
from assay.runtime.ort.enums import GraphOptimizationLevel
from assay.runtime.ort.options import OrtSessionOptions, foreign_fields
from assay.runtime.targets import default_target
from assay.targets.threads import Threads, fixed_threads


@dataclass(slots=True, kw_only=True)
class SessionOptions(OrtSessionOptions):
    """How a session works. Every setting is an argument and an attribute; a session keeps a copy.

    `target` is a chain such as `vulkan,cpu`: a node runs on the first target that takes it. `decomposed` runs milli-ops
    alone; `optimize` runs the passes, less those named in `disabled_passes`. `cache` keeps lowered graphs on disk; a
    path says where. The other settings have the names and
    defaults of ONNX Runtime's; docs/onnxruntime.md says what each means here.
    """

    target: str = field(default_factory=default_target)
    mode: str = "exact"
    decomposed: bool = False
    optimize: bool = True
    disabled_passes: Sequence[str] = ()
    cache: bool | str = field(default=False, metadata={"or": (str,)})
    limits: Limits = field(default_factory=lambda: DEFAULT)

    @property
    def optimizes(self) -> bool:
        """Whether the standard passes run: both ways of saying so must."""
        return self.optimize and self.graph_optimization_level is not GraphOptimizationLevel.ORT_DISABLE_ALL

    @property
    def threads(self) -> Threads:
        """How many threads a run may use."""
        return fixed_threads(self.intra_op_num_threads)


def options_from(given: Any = None, **changes: Any) -> SessionOptions:
    """A copy of session options, ONNX Runtime's own object taken over field by field, with `changes` made to it.

    BadArgument for what is no session options, or has no such setting.
    """
    known = [each.name for each in fields(SessionOptions) if each.init]
    for name in changes:
        if name not in known:
            raise BadArgument(f"a session has no option '{name}'", hint=hint_for(name, known))
    if given is not None and not isinstance(given, SessionOptions):
        return SessionOptions(**{**foreign_fields(given), **changes})
    made = SessionOptions()
    if given is not None:
        for each in fields(SessionOptions):
            setattr(made, each.name, copy(getattr(given, each.name)))
    for name, value in changes.items():
        setattr(made, name, value)
    return made
