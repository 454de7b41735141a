"""What targets share knows none of them: it plans with any kernels, and keeps artifacts of any compiler."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.errors import CompileFailed
from assay.ir.dims import UNKNOWN, dim_max, dim_min, evaluate, symbol
from assay.ir.dtypes import DType, f32, i32
from assay.ir.graph import Graph, Node
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.store import Store, open_store
from assay.targets import shared
from assay.targets.base import limitation
from assay.targets.shared.artifacts import Artifacts, Kernel
from assay.targets.shared.kernels import KernelTable
from assay.targets.shared.loops import Loops
from assay.targets.shared.movement import enter_views
from assay.targets.shared.planner import Planner
from assay.targets.shared.pointwise import Elementwise, Writer
from assay.targets.shared.sizes import Sizes
from assay.targets.shared.tensors import dtype_of

FOLDER = Path(shared.__file__).parent


def test_nothing_shared_knows_a_target() -> None:
    files = sorted(FOLDER.glob("*.py"))
    assert len(files) > 5
    trees = [ast.walk(ast.parse(path.read_text())) for path in files]
    modules = {node.module or "" for tree in trees for node in tree if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name.startswith("assay.targets")} <= {
        "assay.targets.base",
        "assay.targets.shared",
        *(f"assay.targets.shared.{path.stem}" for path in files),
    }


# --- a target that writes its kernels as words


def _unit(unit: Elementwise, loops: Loops) -> Kernel:
    ops = [node.op for node in unit.nodes]
    return Kernel(
        f"{' '.join(ops)} of {len(unit.inputs)}, {[*unit.literals.values()]} over {loops.rows} × {loops.cols}"
    )


def _copy(dtype: DType, loops: Loops) -> Kernel:
    return Kernel(f"copy {dtype} over {loops.rows} × {loops.cols}")


@limitation("no word for whole numbers")
def no_minimum(node: Node) -> bool:
    return dtype_of(node.outputs[0]) is i32


@limitation("other axes")
def other_axes(node: Node) -> bool:
    return node.attrs["axes"] != (1,)


def words() -> KernelTable:
    table = KernelTable(
        Writer(
            ("add", "exp", "min"),
            (no_minimum,),
            lambda node: 3,
            lambda dtype, number: f"{dtype}:{number}",
            _unit,
            _copy,
        )
    )

    def unknown(p: Planner, node: Node) -> None:
        raise AssertionError("nothing here is sliced by data")

    @table.emits("reduce_sum", (f32,), unless=(other_axes,))
    def total(p: Planner, node: Node) -> None:
        x, out = p.dense(node.inputs[0]), p.result(node.outputs[0])
        p.step(Kernel("sum"), [x, out], x.shape, rows=x.shape[0])

    enter_views(table, unknown)
    return table


def graph() -> Graph:
    """exp(xᵀ + 2) summed along its columns, beside xᵀ itself."""
    b = Builder()
    x = b.input(TensorType(f32, (symbol("n"), 4)))
    turned = b.transpose(x, perm=(1, 0))
    return b.finish("g", [x], [b.reduce_sum(b.exp(b.add(turned, 2.0)), axes=(1,)), turned])


def test_a_planner_takes_any_kernels() -> None:
    made, table = graph(), words()
    assert all(table.limitations().support(node).ok for node in made.nodes)
    plan = Planner(made, made.constants, DEFAULT, table)
    assert [step.kernel.source for step in plan.tape.order if step.kernel is not None] == [
        "add exp of 1, ['f32:2.0'] over 1 × 4*n",
        "copy f32 over 4 × n",
        "sum",
    ]
    assert plan.outputs[1].storage is plan.view(made.inputs[0]).storage
    assert plan.outputs[1].strides == (1, 4)


def test_a_table_says_why_it_refuses() -> None:
    b = Builder()
    x, whole = b.input(TensorType(f32, (2, 3))), b.input(TensorType(i32, (2, 3)))
    b.tanh(x)
    b.reduce_sum(x, axes=(0,))
    b.reduce_sum(whole, axes=(1,))
    b.reduce_sum(x, axes=(1,))
    b.min(whole, whole)
    b.add(x, b.input(TensorType(f32, (symbol("n"), 3))))  # its strides are chosen in the run
    b.exp(b.input(TensorType(f32, None)))
    table = words().limitations()
    reasons = [table.support(node).reason for node in b.nodes]
    assert reasons[:2] == ["there is no kernel", "other axes"]
    assert "i32" in reasons[2]
    assert reasons[3:] == [
        "",
        "no word for whole numbers",
        "",
        "a size is known only when the program runs",
    ]


def test_sizes_are_computed_as_dims_are() -> None:
    n, m = symbol("n"), symbol("m")
    dims = [n * m + 3, dim_max(n - m, 0), dim_min(n, 5) * 2, n // 3, (n + m) % 4, 7]
    sizes = Sizes(["n", "m"])
    slots = [sizes.slot(dim) for dim in dims]
    for numbers in ((1, 1), (12, 5), (3, 9), (0, 0)):
        found = sizes.values(numbers)
        bound: dict[str, int] = dict(zip(("n", "m"), numbers, strict=True))
        assert [found[slot] for slot in slots] == [evaluate(dim, bound) for dim in dims]


def test_a_size_that_is_too_involved_ends_the_compilation() -> None:
    with pytest.raises(CompileFailed, match="too involved"):
        Sizes(["n"]).slot(UNKNOWN)


def test_results_that_must_be_row_major_are_copied_where_they_are_not() -> None:
    b = Builder()
    x = b.input(TensorType(f32, (2, 3)))
    turned, summed = b.transpose(x, perm=(1, 0)), b.add(x, x)
    graph = b.finish("turned", [x], [turned, b.transpose(summed, perm=(1, 0)), x, summed])
    for row_major, copies in ((False, 0), (True, 2)):
        plan = Planner(graph, {}, DEFAULT, words(), row_major=row_major)
        kernels = [step.kernel.source for step in plan.tape.steps if step.kernel is not None]
        assert sum(source.startswith("copy") for source in kernels) == copies
        assert not row_major or all(view.is_dense and view.offset == 0 for view in plan.outputs)


def test_an_op_is_planned_once() -> None:
    with pytest.raises(ValueError, match="reshape is planned twice"):
        words().emits("reshape")(lambda p, node: None)


# --- artifacts of a compiler that turns letters


class Backwards:
    """A compiler whose artifacts are sources backwards; `made` are those that it was asked for."""

    def __init__(self, store: Store | None, identity: str = "one") -> None:
        self.artifacts = Artifacts(identity, store, self._load)
        self.made: list[str] = []

    def _load(self, content: bytes, kernel: Kernel) -> str:
        if content != kernel.source[::-1].encode():
            raise CompileFailed("this is something else")
        return content.decode()

    def make(self, kernels: Sequence[Kernel]) -> list[str]:
        self.made += [kernel.source for kernel in kernels]
        return [self.artifacts.keep(kernel, kernel.source[::-1].encode()) for kernel in kernels]

    def ready(self, *sources: str) -> list[str]:
        return self.artifacts.ready([Kernel(source) for source in sources], self.make)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(tmp_path / "cache")
    assert made is not None
    return made


def test_what_was_made_is_not_made_again(store: Store) -> None:
    first, second = Backwards(store), Backwards(store)
    assert first.ready("ab", "cd", "ab") == ["ba", "dc", "ba"]
    assert first.ready("ab") == ["ba"]
    assert first.made == ["ab", "cd"]
    assert second.ready("ab", "ef", "cd") == ["ba", "fe", "dc"]
    assert second.made == ["ef"]


def test_without_a_store_what_was_made_is_not_made_again() -> None:
    compiler = Backwards(None)
    assert compiler.ready("ab") == compiler.ready("ab") == ["ba"]
    assert compiler.made == ["ab"]


def test_what_depends_on_something_else_is_made_again(store: Store) -> None:
    Backwards(store).ready("ab")
    other = Backwards(store, "two")
    assert other.ready("ab") == ["ba"]
    assert other.made == ["ab"]


def test_what_is_kept_and_cannot_be_loaded_is_made_again(store: Store) -> None:
    compiler = Backwards(store)
    store.put(compiler.artifacts.key(Kernel("ab")), b"damaged")
    assert compiler.ready("ab") == ["ba"]
    assert store.get(compiler.artifacts.key(Kernel("ab"))) == b"ba"


def test_what_cannot_be_loaded_is_not_kept(store: Store) -> None:
    compiler = Backwards(store)
    with pytest.raises(CompileFailed):
        compiler.artifacts.keep(Kernel("ab"), b"ab")
    assert store.get(compiler.artifacts.key(Kernel("ab"))) is None
