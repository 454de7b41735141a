"""What Assay relies on of torch's private parts, one test for each, with what breaks if torch changes it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn

WAIT = 60

# --- what they do


@pytest.fixture
def ops() -> Any:
    return importlib.import_module("assay.frontends.torch.private.ops")


@pytest.fixture
def dynamo() -> Any:
    return importlib.import_module("assay.frontends.torch.private.dynamo")


@pytest.fixture
def serde() -> Any:
    return importlib.import_module("assay.frontends.torch.private.serde")


VEC = torch.ops.aten.upsample_nearest2d.vec


def test_overloads_have_names_and_schemas(ops: Any) -> None:
    assert VEC in set(ops.overloads_of("upsample_nearest2d")), "resampling is taken apart: its overloads are not found"
    assert ops.overload_name(VEC) == "vec"
    assert ops.overload_name(torch.ops.aten.sin.default) == "default"
    schema = ops.schema_of(torch.ops.aten.add_.Tensor)
    assert (schema.name, schema.is_mutable) == ("aten::add_", True), "opaque ops may write to arrays that were lent"
    assert [each.name for each in schema.arguments] == ["self", "other", "alpha"], "traces do not name arguments"
    assert ops.schema_of(max) is None


def test_the_dispatcher_says_what_it_can_run(ops: Any) -> None:
    breaks = "exported programs may name ops that are none, or are refused ops that torch takes apart"
    assert ops.has_kernel(torch.ops.aten.sin.default), breaks
    assert ops.is_composite(torch.ops.aten.linear.default), breaks
    assert not ops.is_composite(torch.ops.aten.sin.default), breaks


def test_an_op_runs_below_its_python_function(ops: Any) -> None:
    op = torch.ops.aten._euclidean_dist.default
    a, b = torch.rand(3, 2), torch.rand(4, 2)
    assert torch.equal(ops.run_below(op, a, b), op(a, b)), "ops traced in f64 call themselves for ever"


def test_versions_count_writes(ops: Any) -> None:
    tensor = torch.zeros(2)
    before = ops.version_of(tensor)
    tensor.add_(1)
    assert ops.version_of(tensor) > before, "frozen weights that changed are not seen"


def test_views_share_an_identity_of_storage(ops: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        base = torch.zeros(4)
        assert ops.storage_id(base) == ops.storage_id(base[1:]), "results that alias inputs come back as copies"
        assert ops.storage_id(base) != ops.storage_id(torch.zeros(4)), "results are taken for views of inputs"


def test_contexts_of_trees_are_read_in_known_ways(ops: Any) -> None:
    breaks = "files of torch.export are refused, or make torch import what they name"
    assert ops.tree_context("builtins.dict") == "json", breaks
    assert ops.tree_context("collections.namedtuple") == "own", breaks
    assert ops.tree_context("os.system") is None, breaks


def test_decompositions_are_tables_of_overloads(ops: Any) -> None:
    core, known = ops.core_decompositions(), ops.known_decompositions()
    assert torch.ops.aten.silu.default in core, "the core table lacks what it had: graphs have other ops"
    assert torch.ops.aten.sin.default not in core, "core aten ops are taken apart"
    assert torch.ops.aten._addmm_activation.default in known, "ops stay whole that have no lowering"


def test_sizes_of_resampling_come_from_sizes_or_scales(ops: Any) -> None:
    assert list(ops.sampled_sizes((1, 1, 4, 6), None, [2.0, 0.5])) == [8, 3], "resampling has wrong sizes"
    assert list(ops.sampled_sizes((1, 1, 4, 6), [5, 7], None)) == [5, 7], "resampling has wrong sizes"


def test_a_trace_knows_weights_and_results(ops: Any, dynamo: Any) -> None:
    assert (ops.forward_results(), ops.static_inputs()) == (None, ())
    noted: list[tuple[Any, list[int]]] = []

    def compiler(graph: torch.fx.GraphModule, examples: Any) -> Any:
        noted.append((ops.forward_results(), list(ops.static_inputs())))
        return dynamo.boxed(lambda arguments: graph(*arguments))

    torch.compiler.reset()
    model = nn.Linear(3, 2)
    torch.compile(model, backend=dynamo.aot_autograd(fw_compiler=compiler))(torch.rand(4, 3)).sum().backward()
    (results, weights), *_ = noted
    assert results == 1, "saved values are taken for results"
    assert len(weights) == 2, "frozen weights are not known"


def test_a_boxed_function_is_handed_its_list(dynamo: Any) -> None:
    kinds: list[type] = []

    def compiler(graph: torch.fx.GraphModule, examples: Any) -> Any:
        @dynamo.boxed
        def run(arguments: list[Any]) -> Any:
            kinds.append(type(arguments))
            return graph(*arguments)

        return run

    torch.compiler.reset()
    torch.compile(torch.sin, backend=dynamo.aot_autograd(fw_compiler=compiler))(torch.rand(3))
    assert kinds == [list], "arguments stay alive while a graph runs"


def test_graphs_and_breaks_are_counted(dynamo: Any) -> None:
    torch.compiler.reset()
    dynamo.counters.clear()
    torch.compile(broken, backend="eager")(torch.rand(3))
    assert dynamo.counters["stats"]["unique_graphs"] == 2, "`assay opinfo` and fuzzing pass what was not compiled"
    assert sum(dynamo.counters["graph_break"].values()) == 1, "`assay opinfo` does not see graph breaks"


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def test_programs_are_read_back(serde: Any) -> None:
    assert issubclass(serde.schema.Argument, serde.Alternatives), "files of torch.export are refused"
    assert "_operator.add" in serde.SIZE_FUNCTIONS, "programs that compute with sizes are refused"
    assert serde.dtype_of(serde.schema.ScalarType.FLOAT) is torch.float32, "weights have another dtype"


def test_inductor_takes_weights_for_constants(dynamo: Any) -> None:
    config = importlib.import_module("torch._inductor.config")
    with config.patch(freezing=False):  # it puts back what was there, which deleting the attribute would not
        dynamo.freeze_inductor()
        assert config.freezing, "`assay bench` compares with an inductor that is not at its best"


def test_each_once_is_a_setting_of_the_thread(ops: Any) -> None:
    config: Any = importlib.import_module("torch._functorch.config")
    name = "remat_using_tags_for_fwd_loss_bwd_graph"
    with ops.each_once():
        assert getattr(config, name) is False, "checkpointed models that draw random numbers do not compile"
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(getattr, config, name).result() is True, "other threads compile by Assay's settings"
    assert getattr(config, name) is True


# --- kernels are changed for one compilation at a time


def kernels() -> dict[Any, Any]:
    return dict(VEC.py_kernels)


def lstm_choice() -> Any:
    return importlib.import_module("torch._decomp.decompositions").select_one_layer_lstm_function


def none(_: Any) -> dict[Any, Any]:
    return {}


CHANGES: dict[str, tuple[Callable[[Any], AbstractContextManager[None]], Callable[[], Any]]] = {
    "kernels": (lambda ops: ops.changed_kernels({VEC: none}), kernels),
    "lstm": (lambda ops: ops.lstm_in_steps(), lstm_choice),
}


@pytest.fixture(params=CHANGES)
def change(request: pytest.FixtureRequest, ops: Any) -> tuple[Callable[[], AbstractContextManager[None]], Any]:
    made, state = CHANGES[request.param]
    return lambda: made(ops), state


def test_a_change_is_undone(change: Any) -> None:
    changed, state = change
    before = state()
    with changed():
        assert state() != before
        with changed():
            pass
        assert state() != before
    assert state() == before


def test_a_change_is_undone_after_an_error(change: Any) -> None:
    changed, state = change
    before = state()
    with pytest.raises(KeyError), changed():
        raise KeyError
    assert state() == before


def test_a_change_that_cannot_be_made_is_undone(ops: Any) -> None:
    def fails(_: Any) -> Any:
        raise KeyError

    before = kernels()
    with pytest.raises(KeyError), ops.changed_kernels({VEC: none, torch.ops.aten.upsample_nearest1d.vec: fails}):
        pass
    assert kernels() == before


def test_two_threads_change_kernels_one_after_the_other(change: Any) -> None:
    """Each waits inside for the other, in vain; then neither finds nor leaves the other's change."""
    changed, state = change
    before = state()
    inside = threading.Barrier(2)
    seen: list[Any] = []

    def run() -> None:
        with changed():
            seen.append(state())
            with pytest.raises(threading.BrokenBarrierError):
                inside.wait(0.2)

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run) for _ in range(2)]
        for each in runs:
            each.result(WAIT)
    assert len(seen) == 2
    assert state() == before, "one thread put back what it had found changed"


def test_dynamo_compiles_for_nobody_while_kernels_are_changed(change: Any) -> None:
    """Another backend's compilation in another thread sees torch's own kernels."""
    changed, state = change
    before = state()
    ready, entered, started = threading.Event(), threading.Event(), threading.Event()
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(state())
        return graph

    def compile_other() -> None:
        torch.compile(other, backend="eager")(torch.rand(3))  # loads what compiling needs
        ready.set()
        entered.wait(WAIT)
        started.set()
        torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.rand(3))

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(compile_other)
        assert ready.wait(WAIT)
        with changed():
            entered.set()
            assert started.wait(WAIT)
            with pytest.raises(TimeoutError):
                run.result(0.5)
            assert not seen
        run.result(WAIT)
    assert seen == [before]


def test_models_compiled_in_two_threads_are_right() -> None:
    """Resampling and an LSTM, whose kernels Assay changes, in threads that compile at the same time; then state is
    torch's own again, for eager and for other backends."""
    from assay.runtime.torch.backend import backend

    before = kernels(), lstm_choice()
    layer = nn.LSTM(4, 3, batch_first=True)

    def resample(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear") * 2

    def recur(x: torch.Tensor) -> torch.Tensor:
        return layer(x)[0]

    cases = [(resample, torch.rand(1, 2, 5, 5)), (recur, torch.rand(2, 3, 4))] * 2
    start = threading.Barrier(len(cases))

    def run(function: Any, x: torch.Tensor) -> None:
        start.wait(WAIT)
        given = x.clone().requires_grad_()
        with torch._dynamo.config.patch(allow_rnn=True):
            result = torch.compile(lambda y: function(y), backend=backend)(given)
        torch.testing.assert_close(result, function(x))
        (slope,) = torch.autograd.grad(result.sum(), given)
        expected = x.clone().requires_grad_()
        torch.testing.assert_close(slope, torch.autograd.grad(function(expected).sum(), expected)[0])

    torch.compiler.reset()
    with ThreadPoolExecutor(len(cases)) as pool:
        for each in [pool.submit(run, *case) for case in cases]:
            each.result(5 * WAIT)
    assert (kernels(), lstm_choice()) == before


def test_a_program_is_taken_apart_while_nobody_compiles(ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch changes kernels too when it takes an exported program apart."""
    from assay.frontends.torch.exported import import_program

    program = torch.export.export(nn.Linear(3, 2), (torch.rand(1, 3),))
    free: list[bool] = []
    apart = torch.export.ExportedProgram.run_decompositions

    def observed(self: Any, *args: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            free.append(pool.submit(can_compile).result(WAIT))
        return apart(self, *args)

    def can_compile() -> bool:
        lock = importlib.import_module("torch._dynamo.convert_frame").compile_lock
        return lock.acquire(timeout=0.1) and (lock.release() or True)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", observed)
    import_program(program)
    assert free == [False]
    assert can_compile()


# --- an LSTM layer


@pytest.mark.parametrize("grad", [False, True])
def test_an_lstm_is_whole_without_gradients_alone(ops: Any, grad: bool) -> None:
    """Also where only weights require gradients: torch itself would take oneDNN's layer."""
    from torch.fx.experimental.proxy_tensor import make_fx

    layer = nn.LSTM(4, 3, batch_first=True).requires_grad_(grad)
    with ops.lstm_in_steps(), torch.enable_grad() if grad else torch.no_grad():
        weights = [each.detach() for each in layer.parameters()]
        rule = ops.known_decompositions()[torch.ops.aten.lstm.input]
        state = [torch.zeros(1, 2, 3)] * 2
        graph = make_fx(lambda x: rule(x, state, weights, True, 1, 0.0, False, False, True))(torch.rand(2, 5, 4))
    whole = any("mkldnn_rnn_layer" in str(node.target) for node in graph.graph.nodes)
    assert whole is not grad, "training takes oneDNN's gradient of an LSTM, or inference takes it step by step"


# --- a region of one's own


def test_a_region_leaves_no_trace(dynamo: Any) -> None:
    pgo, utils = (importlib.import_module(f"torch._dynamo.{name}") for name in ("pgo", "utils"))
    torch.compiler.reset()
    torch.compile(broken, backend="eager")(torch.rand(3))
    notes, reasons, entries = pgo._CODE_STATE, list(utils.graph_break_reasons), cached(broken)
    with dynamo.own_region(broken, graph_as_it_is, refuse, dynamic=None) as region:
        region.model(torch.rand(4))
        assert len(region.made) == 2, "explain takes every compilation for one that was given up"
        assert len(region.breaks) == 1, "explain does not see graph breaks"
        assert pgo._CODE_STATE is notes, "a watched model changes how often the user's models compile"
        assert cached(broken) == entries + 1
    assert (pgo._CODE_STATE, utils.graph_break_reasons, cached(broken)) == (notes, reasons, entries)


def test_a_region_that_fails_leaves_no_trace(dynamo: Any) -> None:
    pgo, utils = (importlib.import_module(f"torch._dynamo.{name}") for name in ("pgo", "utils"))
    frames = importlib.import_module("torch._dynamo.convert_frame")
    torch.compiler.reset()
    before = pgo._CODE_STATE, list(utils.graph_break_reasons), dict(frames._bytecode_hooks)

    def fails(graph: Any, inputs: Any) -> Any:
        raise KeyError("no code for this")

    with (
        pytest.raises(dynamo.BackendCompilerFailed),
        dynamo.own_region(broken, fails, refuse, dynamic=None) as region,
    ):
        region.model(torch.rand(3))
    assert (pgo._CODE_STATE, utils.graph_break_reasons, frames._bytecode_hooks) == before


def test_a_region_has_the_guards_that_failed(dynamo: Any) -> None:
    torch.compiler.reset()
    failures: list[tuple[str, str]] = []

    def failed(compilation: str, code: Any, reason: str) -> None:
        failures.append((code.co_name, reason))

    with dynamo.own_region(broken, graph_as_it_is, failed, dynamic=False) as region:
        region.model(torch.rand(3))
        region.model(torch.rand(4))
    assert failures[0][0] == "broken"
    assert "size mismatch" in failures[0][1], "explain does not say why a model was compiled again"


def test_two_regions_in_two_threads_keep_to_themselves(dynamo: Any) -> None:
    """Both are open at once, and a third thread compiles for itself: notes, breaks and hooks of none reach another."""
    pgo = importlib.import_module("torch._dynamo.pgo")
    torch.compiler.reset()
    both = threading.Barrier(3)

    def watch(breaks: int) -> tuple[int, int]:
        def model(x: torch.Tensor) -> torch.Tensor:
            for _ in range(breaks):
                x = broken(x)
            return x.tan()

        with dynamo.own_region(model, graph_as_it_is, refuse, dynamic=None) as region:
            both.wait(WAIT)
            region.model(torch.rand(3))
            both.wait(WAIT)
            return len(region.breaks), len(region.made)

    def compile_other() -> tuple[int, int]:
        both.wait(WAIT)
        torch.compile(other, backend="eager")(torch.rand(3))
        torch.compile(other, backend="eager")(torch.rand(4))
        both.wait(WAIT)
        return 0, 0

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(watch, 0), pool.submit(watch, 1), pool.submit(compile_other)]
        quiet, noisy, _ = (each.result(WAIT) for each in runs)
    assert quiet == (0, 1)
    assert noisy[0] == 1
    assert any(code.name == "other" for code in pgo._CODE_STATE), "the third thread's notes on sizes are lost"
    assert not any(code.name == "model" for code in pgo._CODE_STATE)


def other(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


def graph_as_it_is(graph: Any, inputs: Any) -> Any:
    return graph


def refuse(compilation: str, code: Any, reason: str) -> None:
    raise AssertionError(f"compiled again: {reason}")


def cached(function: Any) -> int:
    """How many compilations of a function still run."""
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    entries = _debug_get_cache_entry_list(function.__code__)
    return sum(not isinstance(each.guard_manager, DeletedGuardManagerWrapper) for each in entries)


# --- the rest


def test_constants_are_real_under_fake_tensors(ops: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode() as mode:
        fake = torch.zeros(2)
        assert ops.detect_fake_mode((fake,)) is mode, "checkpointed ops that draw random numbers are not imported"
        with ops.unset_fake_temporarily():
            assert not isinstance(torch.zeros(2), FakeTensor), "constants of aten graphs are lost"
    assert ops.detect_fake_mode((torch.zeros(2),)) is None


def test_tensor_subclasses_are_told_from_tensors(ops: Any) -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    assert ops.is_wrapper_subclass(nested), "tensor subclasses are not refused by name"
    assert not ops.is_wrapper_subclass(torch.zeros(2))


def test_the_op_database_has_entries_that_do_not_seed() -> None:
    private = importlib.import_module("assay.evidence.opinfo.private")
    private.unseeded()
    assert len(private.op_db) > 500
    before = torch.get_rng_state()
    invocations = importlib.import_module("torch.testing._internal.common_methods_invocations")
    invocations.wrapper_set_seed(torch.sin, torch.zeros(1))
    assert torch.equal(torch.get_rng_state(), before), "dynamo breaks the graphs of ops that draw random numbers"
