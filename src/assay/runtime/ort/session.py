"""`InferenceSession`: ONNX models with ONNX Runtime's names and habits."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from assay.errors import AssayError, BadArgument, LowerFailed, RunFailed, RunStopped, Unsupported
from assay.ir.graph import Graph, Node, Value
from assay.needs import explained
from assay.runtime.explanation import Explanation
from assay.runtime.feeds import UnequalDims
from assay.runtime.options import SessionOptions, options_from
from assay.runtime.ort.binding import IOBinding
from assay.runtime.ort.describe import ModelMetadata, NodeArg, metadata_of, node_arg
from assay.runtime.ort.memory import OrtMemoryInfo
from assay.runtime.ort.options import budget_of
from assay.runtime.ort.profiling import Profiler
from assay.runtime.ort.providers import provider_names, provider_of, target_of
from assay.runtime.ort.refused import refused_method
from assay.runtime.ort.values import OrtValue
from assay.runtime.ort.variants import loosened, with_inputs
from assay.runtime.session import Session
from assay.runtime.stages import stage

if TYPE_CHECKING:
    import onnx

Providers = Sequence["str | tuple[str, Mapping[str, Any]]"]
AsyncCallback = Callable[["list[Any]", Any, str], None]


class InferenceSession:
    """Runs an ONNX model. Takes a path or the model's bytes; `providers` name targets, best first (ONNX Runtime's
    pairs of a name and options are taken too); further arguments are those of `SessionOptions`.

    `session.run(None, {"x": array})` gives all outputs as a list. Beyond ONNX Runtime: `explain()` says
    where every node runs, `observe(feeds, names)` gives any intermediate result, `session` is Assay's own session.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        enable_fallback: bool = True,
        read_config_from_model: bool = False,
        disabled_optimizers: Iterable[str] | None = None,
        **options: Any,
    ) -> None:
        if read_config_from_model or disabled_optimizers:
            raise Unsupported("options inside of models and single optimizers are ONNX Runtime's own")
        chosen = options_from(sess_options, **options)
        named = provider_names(providers) if providers else chosen.providers
        if named:
            chosen.target = target_of(named)
        self._profiler = Profiler(chosen.profile_file_prefix) if chosen.enable_profiling else None
        started = time.perf_counter()
        model, graph = _read(path_or_bytes, chosen)
        self._note("model_loading", started)
        self._meta, self._overridable = metadata_of(model), _overridable(model)
        self.session = Session(graph, chosen)
        self._note("session_initialization", started)
        self._variants: dict[tuple[frozenset[str], bool], Session] = {}
        self._lock = threading.Lock()
        if self._profiler is not None:
            weakref.finalize(self, self._profiler.end)

    # --- runs

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs asked for (None or none: all), in order."""
        if isinstance(output_names, str):
            raise BadArgument(f"output_names is a list, got {output_names!r}", hint=f"write [{output_names!r}]")
        feeds = {name: value.value() if isinstance(value, OrtValue) else value for name, value in input_feed.items()}
        wanted = list(output_names or self.session.output_names)
        given = self._overridable.intersection(feeds)
        try:
            found = self._run(self._serving(given, loose=False), feeds, wanted, run_options)
        except UnequalDims as unequal:
            found = self._run_loosely(given, feeds, wanted, run_options, unequal)
        return [found[name] for name in wanted]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: Any = None,
    ) -> list[OrtValue]:
        """As `run`, from values to values."""
        return [OrtValue(result) for result in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: AsyncCallback,
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Run in a thread of its own, which calls `callback(results, user_data, error)` in the end; `error` is empty
        if all went well, else there are no results."""

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except AssayError as failure:
                results, error = [], str(failure)
            callback(results, user_data, error)

        threading.Thread(target=work, name="assay run_async").start()

    def io_binding(self) -> IOBinding:
        """A binding for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run with the inputs and outputs that are bound."""
        iobinding.run(self, run_options)

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor of zeros."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    # --- what the model is

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run takes."""
        graph = self.session.source
        return [self._described(name, value) for name, value in zip(graph.input_names, graph.inputs, strict=True)]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs that a run gives."""
        graph = self.session.lowered
        return [self._described(name, value) for name, value in zip(graph.output_names, graph.outputs, strict=True)]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that a run may be fed another value for."""
        names = self.session.source.names
        return [node_arg(name, names[name].type) for name in self._overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return self._meta

    def explain(self) -> Explanation:
        """Every node: op, target, reason."""
        return self.session.explain()

    def observe(self, feeds: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
        """Intermediate results by their names in the model."""
        return self.session.observe(feeds, names)

    # --- where and how it runs

    def get_session_options(self) -> SessionOptions:
        """A copy of the options."""
        return options_from(self.session.options)

    def get_providers(self) -> list[str]:
        """The providers in use: the one asked for, and the oracle that takes what it refuses."""
        return list(dict.fromkeys([provider_of(self.session.target.name), "reference"]))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """No options for each provider in use."""
        return {name: {} for name in self.get_providers()}

    def set_providers(
        self, providers: Providers | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Compile the model again, for other providers."""
        options = options_from(self.session.options, target=target_of(provider_names(providers or ())))
        with self._lock:
            self.session = Session(self.session.source, options)
            self._variants.clear()

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each input is read: in the CPU's memory."""
        return [OrtMemoryInfo() for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each output is written: in the CPU's memory."""
        return [OrtMemoryInfo() for _ in self.get_outputs()]

    def enable_fallback(self) -> None:
        """Does nothing: nodes that a target refuses go to the oracle, whatever was said."""

    def disable_fallback(self) -> None:
        """Does nothing: nodes that a target refuses go to the oracle, whatever was said."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Does nothing: providers have no options here."""

    def get_tuning_results(self) -> list[Any]:
        """There are none."""
        return []

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Does nothing: nothing is captured."""

    # --- profiles

    def end_profiling(self) -> str:
        """Write the profile and give its path; empty if nothing was to be profiled, or it was written before."""
        return "" if self._profiler is None else self._profiler.end()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds since 1970; 0 if nothing is profiled."""
        return 0 if self._profiler is None else self._profiler.start_ns

    get_input_epdevices = refused_method("InferenceSession", "get_input_epdevices")
    get_provider_graph_assignment_info = refused_method("InferenceSession", "get_provider_graph_assignment_info")
    run_with_ortvaluevector = refused_method("InferenceSession", "run_with_ortvaluevector")
    set_tuning_results = refused_method("InferenceSession", "set_tuning_results")

    def _note(self, name: str, started: float) -> None:
        if self._profiler is not None:
            self._profiler.span(name, started)

    def _run(
        self, session: Session, feeds: Mapping[str, Any], wanted: Sequence[str], run_options: Any
    ) -> dict[str, Any]:
        budget = budget_of(run_options)
        if self._profiler is None:
            return session.run(feeds, wanted, budget=budget)
        started = time.perf_counter()
        found = session.run(feeds, wanted, budget=budget, observer=self._profiler.nodes(partial(_provider, session)))
        self._profiler.span("model_run", started)
        return found

    def _run_loosely(
        self,
        given: frozenset[str],
        feeds: Mapping[str, Any],
        wanted: Sequence[str],
        run_options: Any,
        unequal: UnequalDims,
    ) -> dict[str, Any]:
        """For ONNX Runtime a name of dims is a word: sizes may differ where no op minds. Where one does, they are
        what is wrong with the feeds."""
        try:
            return self._run(self._serving(given, loose=True), feeds, wanted, run_options)
        except RunStopped:
            raise
        except (LowerFailed, RunFailed) as error:
            raise unequal from error

    def _serving(self, given: frozenset[str], *, loose: bool) -> Session:
        """The session for feeds that replace these initializers, and whose dims may be what they like if `loose`."""
        if not given and not loose:
            return self.session
        with self._lock:
            if (given, loose) not in self._variants:
                graph = with_inputs(self.session.source, sorted(given))
                self._variants[given, loose] = Session(loosened(graph) if loose else graph, self.session.options)
            return self._variants[given, loose]

    def _described(self, name: str, value: Value) -> NodeArg:
        """As `node_arg`; dims without a name of their own, which are called INPUT.AXIS inside, are None."""
        given = zip(self.session.source.input_names, self.session.source.inputs, strict=True)
        inner = {f"{i}.{axis}" for i, v in given for axis in range(len(getattr(v.type, "shape", None) or ()))}
        found = node_arg(name, value.type)
        return replace(found, shape=[None if dim in inner else dim for dim in found.shape])


def _read(source: Any, options: SessionOptions) -> tuple[onnx.ModelProto, Graph]:
    """The model as its options want it, and its graph."""
    with explained():
        from assay.frontends.onnx import import_model, read_model
    if not isinstance(source, bytes | str | os.PathLike):
        raise BadArgument(f"a model is a path or bytes, got {type(source).__name__}")
    given = source if isinstance(source, bytes) else os.fspath(cast("os.PathLike[str]", source))
    with stage("import"):
        model, folder = read_model(given, options.limits)
        options.edits.apply(model)
        return model, import_model(model, folder, options.limits)


def _overridable(model: onnx.ModelProto) -> frozenset[str]:
    """The initializers that are inputs too; before version 4 of the format all had to be, which says nothing."""
    if model.ir_version < 4:
        return frozenset()
    return frozenset(info.name for info in model.graph.input) & {tensor.name for tensor in model.graph.initializer}


def _provider(session: Session, node: Node) -> str:
    return provider_of(session.ran_on(node))
