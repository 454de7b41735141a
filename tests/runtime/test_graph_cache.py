"""Lowered graphs on disk: found by content alone, with this run's names and origins, and never trusted blindly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay
from assay.errors import LowerFailed
from assay.evidence.fuzz.graph_cases import random_case
from assay.ir import dtypes
from assay.ir.binary import decode, encode, shared_parts
from assay.ir.dims import symbol
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.printer import print_graph
from assay.ir.types import TensorType
from assay.ir.verify import verify
from assay.ops.builder import Builder
from assay.ops.lowering import lower
from assay.runtime.graph_cache import graph_key, lowered_graph
from assay.runtime.pipeline import optimized
from assay.store import Store

F32 = TensorType(dtypes.f32, (symbol("n"), 3))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


class Counted:
    """Lowers a graph, and counts how often it was asked to."""

    def __init__(self, source: Graph, facts: list[Fact] | None = None) -> None:
        self.source, self.facts, self.builds = source, facts or [Fact(v.type) for v in source.inputs], 0

    def get(self, store: Store, *options: str) -> Graph:
        return lowered_graph(self.source, self.facts, self._build, store=store, options=options)

    def _build(self) -> Graph:
        self.builds += 1
        return optimized(lower(self.source, self.facts), "exact")


def built(
    axis: int = 1, weight: Any = (1.0, 2.0, 3.0), kind: TensorType = F32, origin: str = "here", **fields: Any
) -> Graph:
    b = Builder()
    x = b.input(kind)
    with b.origin(Origin("source", "node", file=f"{origin}.py", line=len(origin))):
        y = b.softmax(b.mul(b.reshape(b.reshape(x, [-1]), [-1, 3]), b.constant(weight, dtypes.f32)), axis=axis)
    return b.finish("g", [x], [y], names={f"{origin}_y": y, f"{origin}_x": x}, input_names=(f"{origin}_x",), **fields)


# ---- keys ----------------------------------------------------------------------------------------------------


def key(graph: Graph, value: Any = None, options: tuple[str, ...] = ("exact",)) -> str:
    return graph_key(graph, [Fact(graph.inputs[0].type, value)], options)


def dims(*items: Any) -> Any:
    content = np.empty(len(items), object)
    content[:] = items
    return content


def test_all_that_matters_makes_another_key() -> None:
    keys = [
        key(built()),
        key(built(axis=0)),
        key(built(weight=(1.0, 2.0, 4.0))),
        key(built(weight=(-1.0, 2.0, 3.0))),
        key(built(kind=TensorType(dtypes.f32, (symbol("m"), 3)))),
        key(built(kind=TensorType(dtypes.f32, (symbol("n", 2), 3)))),
        key(built(kind=TensorType(dtypes.f32, (4, 3)))),
        key(built(), np.zeros(3)),
        key(built(), np.ones(3)),
        key(built(), np.ones(3, np.float32)),
        key(built(), dims(symbol("n"), 3)),
        key(built(), dims(symbol("n"), 4)),
        key(built(), options=()),
        key(built(), options=("exact", "")),
        key(built(), options=("precise",)),
        key(built(level="symbolic")),
    ]
    assert len(set(keys)) == len(keys)


def test_names_and_origins_make_no_other_key() -> None:
    assert key(built()) == key(built(origin="there")) == key(built())


def test_a_sign_of_zero_and_a_kind_of_number_make_another_key() -> None:
    def keyed(value: Any) -> str:
        return graph_key(Graph("g", (), (), (Node("op", (), (), Origin("o"), {"a": value}),)), [], ())

    values = [0, 0.0, -0.0, False, None, "0", b"0", (0,), ((0,),), dtypes.f32, "f32", np.zeros(1), np.zeros(1, np.int8)]
    assert len({keyed(value) for value in values}) == len(values)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a copy of the package, which nobody edits meanwhile."""
    folder = tmp_path / "copy"
    source = Path(assay.__file__).parent
    shutil.copytree(source, folder / "assay", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(program: str, package: Path, seed: str, *arguments: str) -> str:
    """What a program prints that uses this copy of the package."""
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


KEYED = """
from assay.ir.graph import Graph
from assay.runtime.graph_cache import graph_key
print(graph_key(Graph("g", (), (), ()), [], ()))
"""


def test_an_edit_of_the_code_makes_another_key(package: Path) -> None:
    before = run(KEYED, package, "1")
    assert run(KEYED, package.rename(package.with_name("moved")), "2") == before  # wherever it is installed
    moved = package.with_name("moved")
    for part, alike in (("cli/run.py", True), ("passes/fold.py", False)):
        with (moved / "assay" / part).open("a") as file:
            file.write("\n# edited\n")
        assert (run(KEYED, moved, "3") == before) == alike


# ---- found again ---------------------------------------------------------------------------------------------


def test_the_second_time_nothing_is_built(store: Store) -> None:
    first, again = Counted(built()), Counted(built())
    one, other = first.get(store, "exact"), again.get(store, "exact")
    assert (first.builds, again.builds) == (1, 0)
    assert print_graph(one) == print_graph(other)
    assert "simplify" in print_graph(other)
    verify(other)
    again.get(store, "precise")
    assert again.builds == 1


def test_without_a_store_the_sources_are_not_read() -> None:
    """Reading all of them takes longer than a small model takes to be lowered."""
    script = (
        "import sys, assay; from assay.ops.builder import Builder; from assay.runtime.session import Session\n"
        "b = Builder(); Session(b.finish('g', [], [b.constant([1.0])]))\n"
        "print('assay.runtime.graph_cache' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_names_and_origins_are_this_runs_own(store: Store) -> None:
    Counted(built()).get(store)
    moved = Counted(built(origin="elsewhere"))
    assert print_graph(moved.get(store)) == print_graph(optimized(lower(moved.source, moved.facts), "exact"))
    assert moved.builds == 0
    assert "here.py" not in print_graph(moved.get(store)).replace("elsewhere.py", "")


def test_constants_of_the_source_are_not_stored_again(store: Store, tmp_path: Path) -> None:
    weight = np.random.default_rng(0).random((500, 3), np.float32)
    graph = Counted(built(weight=weight))
    graph.get(store)
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 10_000
    assert any(np.shares_memory(array, weight) for array in graph.get(store).constants.values())
    assert graph.builds == 1


def test_what_fails_to_build_is_not_stored(store: Store, tmp_path: Path) -> None:
    def fail() -> Graph:
        raise LowerFailed("no")

    with pytest.raises(LowerFailed):
        lowered_graph(built(), [], fail, store=store)
    assert not list(tmp_path.glob("*.entry"))


@pytest.mark.parametrize("where", ["source", "result"])
def test_a_graph_that_cannot_be_written_is_built_every_time(store: Store, tmp_path: Path, where: str) -> None:
    odd = replace(built(), nodes=(Node("op", (), (), Origin("o"), {"a": object()}),))
    source, result = (odd, built()) if where == "source" else (built(), odd)
    for _ in range(2):
        assert lowered_graph(source, [], lambda: result, store=store) is result
    assert not list(tmp_path.glob("*.entry"))


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_are_found_again(store: Store, seed: int) -> None:
    first = Counted(random_case(np.random.default_rng(seed)).graph)
    again = Counted(random_case(np.random.default_rng(seed)).graph)
    assert print_graph(first.get(store)) == print_graph(again.get(store))
    assert again.builds == 0


# ---- not trusted ---------------------------------------------------------------------------------------------


def forged(store: Store, graph: Counted, change: Callable[[Graph], Graph]) -> None:
    """Put another graph under the key of `graph`, in an entry that is whole."""
    known = shared_parts(graph.source)
    name = graph_key(graph.source, graph.facts, ())
    store.put(name, encode(change(decode(encode(graph.source, known), known)), known))


def opaque(graph: Graph, target: str) -> Graph:
    attrs = {
        "target": target,
        "args": ("=/etc/passwd",),
        "kwargs": (),
        "kinds": ("f32[]",),
        "reason": "",
        "effect": "observable",
    }
    made = Value(900, TensorType(dtypes.f32, ()))
    return replace(graph, nodes=(*graph.nodes, Node("opaque", (), (made,), Origin("o"), attrs)))


FORGERIES: dict[str, Callable[[Graph], Graph]] = {
    "an op that is none": lambda g: replace(g, nodes=tuple(replace(n, op="aten.py.load") for n in g.nodes)),
    "a call that the source does not make": lambda g: opaque(g, "aten.py.load"),
    "other outputs": lambda g: replace(g, outputs=()),
    "other inputs": lambda g: replace(g, inputs=(*g.inputs, Value(901, F32)), input_names=()),
    "a constant of another type": lambda g: replace(g, constants={v: np.zeros(9, np.int8) for v in g.constants}),
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES.keys())
def test_an_entry_that_cannot_be_the_result_is_rebuilt(store: Store, change: Callable[[Graph], Graph]) -> None:
    graph = Counted(built())
    forged(store, graph, change)
    expected = print_graph(optimized(lower(graph.source, graph.facts), "exact"))
    assert print_graph(graph.get(store)) == expected
    assert graph.builds == 1
    assert print_graph(graph.get(store)) == expected
    assert graph.builds == 1


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\2\0\0\0\0\0\0\0{}", b"\x80\x04."])
def test_an_entry_that_is_no_graph_is_rebuilt(store: Store, content: bytes) -> None:
    graph = Counted(built())
    store.put(graph_key(graph.source, graph.facts, ()), content)
    graph.get(store)
    graph.get(store)
    assert graph.builds == 1


# ---- torch ---------------------------------------------------------------------------------------------------

TORCH = """
import sys
from pathlib import Path
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from assay.frontends.torch import import_fx
from assay.frontends.torch.decompositions import decompositions
from assay.ir.printer import print_graph
from assay.ops.lowering import lower
from assay.runtime.graph_cache import lowered_graph
from assay.runtime.pipeline import optimized
from assay.store import Store

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(2, 4, 3), torch.nn.LayerNorm(6)
    def forward(self, x):
        y = self.norm(torch.nn.functional.gelu(self.conv(x)))
        rows = y.reshape(x.shape[0] * 4, -1)
        table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        return torch.cat([rows, rows[:1].expand(x.shape[0], -1)]).softmax(-1).sum() + table.sum() * x.shape[0]

store, built = Store(Path(sys.argv[1])), []

def compiler(module, examples):
    imported = import_fx(module)
    def build():
        built.append(1)
        return optimized(lower(imported.graph, imported.facts), "exact")
    graph = lowered_graph(imported.graph, imported.facts, build, store=store, options=("torch",))
    assert print_graph(graph) == print_graph(build())
    built.pop()
    return make_boxed_func(module.forward)

def backend(module, inputs):
    compile = dict(fw_compiler=compiler, bw_compiler=compiler, inference_compiler=compiler)
    return aot_autograd(**compile, decompositions=decompositions())(module, inputs)

torch.manual_seed(0)
for dynamic in (False, True):
    torch._dynamo.reset()
    torch.compile(Model(), backend=backend, dynamic=dynamic)(torch.randn(3, 2, 8, 8)).backward()
print(len(built))
"""


def test_another_process_finds_what_one_has_built(package: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    assert [run(TORCH, package, seed, str(folder)) for seed in ("1", "2")] == ["4", "0"]
