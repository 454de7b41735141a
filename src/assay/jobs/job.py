"""A job: a graph one level above models. It calls them, and says what happens around them.

It holds core ops and those of `assay.jobs`. Models, tokenizers and streams are inputs of it, links whose types name the
very thing by a hash; it carries no weights, so it can be sent. Settings are named constants: a run may give others.
The oracle runs it, node by node; models run on their own targets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from assay.errors import BadFeed, FileMissing, ImportFailed, LimitExceeded, VerifyFailed
from assay.ir.dims import Dim
from assay.ir.dtypes import Array
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value, named_values
from assay.ir.parser import parse_graph
from assay.ir.printer import print_graph
from assay.ir.types import LinkType, TensorType, Type, UnknownType
from assay.ir.verify import verify
from assay.jobs import definitions as definitions
from assay.jobs.models import JobModel
from assay.limits import Limits
from assay.ops import CORE, OPS
from assay.ops.registry import FactMissing, complete_attrs
from assay.runtime.feeds import check_feeds
from assay.targets.base import Event
from assay.targets.budget import Budget
from assay.targets.reference.interpreter import Interpreter

HEADER = "assay-job 1\n"
"""What a file with a job begins with; the text form of its graph follows."""
FILE_BYTES = 1 << 22
LIMITS = Limits(tensor_bytes=1 << 26, nesting=8, rank=8, loop_iterations=1 << 24)
"""What a job may ask for itself; models have limits of their own."""

_FOREIGN = frozenset({"opaque", "deferred"})
"""Core ops that run what other frameworks define: no part of a job."""

Watch = Callable[[str, Any], None]
"""Is told of values, by their paths."""


class JobGraph:
    """A verified graph of the level `job`. Threads may share it."""

    def __init__(self, graph: Graph) -> None:
        """VerifyFailed if the graph is no job."""
        if graph.level != "job" or not graph.input_names:
            raise VerifyFailed(f"a graph of the level '{graph.level}' is no job", hint="jobs have named inputs")
        verify(graph, job_level)
        self.graph = graph

    @property
    def settings(self) -> dict[str, Array]:
        """The named constants, which a run may replace."""
        named = {name: value for name, value in self.graph.names.items() if value in self.graph.constants}
        return {name: self.graph.constants[value] for name, value in named.items()}

    @property
    def links(self) -> dict[str, LinkType]:
        """The inputs that are models, tokenizers and the like."""
        pairs = zip(self.graph.input_names, self.graph.inputs, strict=True)
        return {name: value.type for name, value in pairs if isinstance(value.type, LinkType)}

    @property
    def paths(self) -> list[str]:
        """The paths of all values that a run can be watched at, those in models left out."""
        return list(named_values(self.graph))

    @cached_property
    def text(self) -> str:
        """The text form, which `read_text` reads back."""
        return print_graph(self.graph)

    @property
    def digest(self) -> str:
        """A hash of the job."""
        return "sha256:" + hashlib.sha256(self.text.encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the job to a file."""
        Path(path).write_text(HEADER + self.text, encoding="utf-8")

    def run(
        self,
        given: Mapping[str, Any],
        *,
        budget: Budget | None = None,
        watched: Mapping[str, Watch] | None = None,
    ) -> dict[str, Any]:
        """The outputs by name. `given` are the inputs, and settings that differ from the job's own; a stream that is
        not given goes nowhere.

        `watched` says who is told of a value: by its name in the job, or by the name of a model and that of a value in
        it (`decoder/layers.0.key`). The budget bounds the run and every call; `cancel` ends it with RunStopped.
        """
        wanted = dict(watched or {})
        quiet: dict[str, Any] = {name: _nobody for name, kind in self.links.items() if kind.kind == "stream"}
        feeds = {**self.settings, **quiet, **given}
        for name, kind in self.links.items():
            feeds[name] = _bound(name, kind, feeds.get(name), budget, wanted)
        self._check_paths(wanted)
        self._check_calls(feeds)
        inputs = check_feeds(self._open, feeds)
        allowance = None if budget is None else budget.begin()
        results = self._program.run(inputs, self._observer(wanted), allowance)
        return dict(zip(self.graph.output_names, results, strict=True))

    @cached_property
    def _open(self) -> Graph:
        """The graph with its settings as further inputs."""
        names = tuple(self.settings)
        values = tuple(self.graph.names[name] for name in names)
        left = {value: array for value, array in self.graph.constants.items() if value not in values}
        inputs, input_names = (*self.graph.inputs, *values), (*self.graph.input_names, *names)
        return replace(self.graph, inputs=inputs, input_names=input_names, constants=left)

    @cached_property
    def _program(self) -> Interpreter:
        return Interpreter(self._open, "exact", LIMITS, {})

    def _observer(self, wanted: Mapping[str, Watch]) -> Callable[[Event], None] | None:
        named = named_values(self.graph)
        listeners: dict[Value, list[tuple[str, Watch]]] = {}
        for name, watch in wanted.items():
            if name in named:
                listeners.setdefault(named[name], []).append((name, watch))
        if not listeners:
            return None

        def tell(event: Event) -> None:
            for value, result in zip(event.node.outputs, event.results, strict=True):
                for name, watch in listeners.get(value, ()):
                    watch(name, result)

        return tell

    def _check_paths(self, wanted: Mapping[str, Watch]) -> None:
        models = {name for name, kind in self.links.items() if kind.kind == "model"}
        for path in wanted:
            if path not in self.paths and path.partition("/")[0] not in models:
                raise BadFeed(f"the job has no value '{path}'", hint=f"it has {', '.join(self.paths)}")

    def _check_calls(self, feeds: Mapping[str, Any]) -> None:
        """BadFeed if a model takes other inputs than a node gives it."""
        models = {value: feeds.get(name) for name, value in zip(self.graph.input_names, self.graph.inputs, strict=True)}
        for node in self.graph.walk():
            model = models.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
            if not isinstance(model, JobModel) or node.op not in _OWN_INPUTS:
                continue
            count = len(node.inputs) - _OWN_INPUTS[node.op]
            known = node.op == "job.step" and count < len(model.inputs)  # a state may have the others
            if count != len(model.inputs) and not known:
                raise BadFeed(f"the model takes {', '.join(model.inputs)}; the job gives it {count} inputs")


_OWN_INPUTS = {"job.call": 1, "job.step": 2}
"""How many inputs of ops that call models are not handed to them."""


def read_job(path: str | Path) -> JobGraph:
    """The job in a file. ImportFailed, or VerifyFailed, if it is none."""
    given = Path(path)
    if not given.is_file():
        raise FileMissing(f"there is no file '{given}' with a job")
    if given.stat().st_size > FILE_BYTES:
        raise LimitExceeded(f"the file has more than {FILE_BYTES} bytes", where=str(given))
    try:
        content = given.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise ImportFailed(f"the file is no text: {error}", where=str(given)) from None
    if not content.startswith(HEADER):
        raise ImportFailed("the file is no job", where=str(given), hint=f"a job begins with '{HEADER.strip()}'")
    return read_text(content.removeprefix(HEADER))


def read_text(text: str) -> JobGraph:
    """The job that a text describes. ImportFailed, or VerifyFailed, if it is none."""
    return JobGraph(parse_graph(text, LIMITS))


def job_level(node: Node) -> str | None:
    """What is wrong with a node of a job, or None: its op, its attributes, its bodies, or a type that it claims."""
    definition = OPS.get(node.op)
    known = node.op in CORE or node.op.startswith("job.")
    if definition is None or not known or node.op in _FOREIGN:
        return f"'{node.op}' is no op of jobs"
    if len(node.regions) != definition.regions:
        return f"{node.op} has {len(node.regions)} bodies, not {definition.regions}"
    facts = [None if value is None else Fact(value.type) for value in node.inputs]
    try:
        attrs = complete_attrs(definition, node.attrs)
        kinds = definition.infer(facts, {**attrs, "regions": node.regions} if definition.regions else attrs)
    except FactMissing:
        return None
    except Exception as error:  # rules are written for attributes of the right kinds
        return f"{type(error).__name__}: {error}"
    if len(kinds) != len(node.outputs):
        return f"{node.op} gives {len(kinds)} results, not {len(node.outputs)}"
    pairs = zip(kinds, node.outputs, strict=True)
    wrong = [(kind, value) for kind, value in pairs if not _compatible(kind, value.type)]
    return f"{wrong[0][1]} is {wrong[0][0]}, not {wrong[0][1].type}" if wrong else None


def _compatible(made: Type, stated: Type) -> bool:
    """Whether a value of one type may be of the other, as far as both are known."""
    if isinstance(made, UnknownType) or isinstance(stated, UnknownType):
        return True
    if not isinstance(made, TensorType) or not isinstance(stated, TensorType):
        return made == stated
    if made.dtype is not stated.dtype:
        return False
    if made.shape is None or stated.shape is None:
        return True
    return len(made.shape) == len(stated.shape) and all(map(_may_be_equal, made.shape, stated.shape))


def _may_be_equal(a: Dim, b: Dim) -> bool:
    return a == b or not (isinstance(a, int) and isinstance(b, int))


def _nobody(*values: Any) -> None:
    """Hears what nobody listens to."""


def _bound(name: str, kind: LinkType, given: Any, budget: Budget | None, wanted: Mapping[str, Watch]) -> Any:
    """What is given for a link, ready for a run. BadFeed if it is nothing, or something else than the job names."""
    if given is None:
        raise BadFeed(f"the {kind.kind} '{name}' is missing", hint=f"give it by name: {kind.content or 'any will do'}")
    if kind.content and getattr(given, "digest", "") != kind.content:
        raise BadFeed(f"'{name}' is another {kind.kind} than the job was made for", hint=f"it wants {kind.content}")
    if not isinstance(given, JobModel):
        return given
    paths = {path: path.removeprefix(f"{name}/") for path in wanted if path.startswith(f"{name}/")}
    return given.for_run(budget, {inner: partial(wanted[path], path) for path, inner in paths.items()})
