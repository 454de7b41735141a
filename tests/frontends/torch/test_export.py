"""`assay.load` on programs of torch.export, from memory and from `.pt2` files, against eager."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

import assay
from assay.errors import BadFeed, ImportFailed, NotFound
from assay.frontends.torch import registry
from assay.ir.types import TensorType


class Nested(nn.Module):
    """Positional, nested and keyword arguments; nested results with a size, None, a number and an input in them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("shift", torch.randn(4), persistent=False)
        self.fixed = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: Tensor, more: dict[str, Any], *, mask: Tensor | None = None, scale: int = 1) -> dict[str, Any]:
        y = self.linear(x) + more["a"] + more["b"][0] * self.fixed + self.shift
        y = y if mask is None else y * mask
        return {"y": y * scale, "rest": [x.shape[0], None, 3.5, x], "sum": y.sum()}


class Counter(nn.Module):
    """Counts its calls and keeps a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.mean: torch.Tensor
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls.add_(1)
        before = self.mean.clone()
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return before, self.mean * self.calls


class Cache(nn.Module):
    """Writes into an argument."""

    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        before = cache.clone()
        cache.add_(x)
        return before, cache * 2


def nested() -> tuple[Nested, ExportedProgram]:
    model, batch = Nested().eval(), Dim("batch", max=64)
    args, kwargs = arguments(3)
    by_batch = {0: batch}
    shapes = {"x": by_batch, "more": {"a": by_batch, "b": (by_batch,)}, "mask": by_batch, "scale": None}
    return model, export(model, args, kwargs, dynamic_shapes=shapes)


def arguments(n: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x, a, b, mask = (torch.randn(n, 4) for _ in range(4))
    return (x, {"a": a, "b": (b,)}), {"mask": mask, "scale": 2}


def both_ways(program: ExportedProgram, folder: Path) -> list[assay.Session]:
    path = folder / "model.pt2"
    torch.export.save(program, path)
    return [assay.load(program), assay.load(path)]


def close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(theirs), rtol=1e-5, atol=1e-5)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor], Any, tuple[int, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1)),
        lambda n: torch.randn(n, 8),
        {0: Dim("batch")},
        (1, 2, 5, 33),
    ),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 5),
        ),
        lambda n: torch.randn(n, 3, 8, 8),
        {0: Dim("batch")},
        (1, 4),
    ),
    "transformer": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
        ),
        lambda n: torch.randn(2, n, 16),
        {1: Dim("length", max=512)},
        (1, 2, 7, 64, 200),
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_one_session_serves_every_size(kind: str, tmp_path: Path) -> None:
    make, inputs, dims, sizes = MODELS[kind]
    model = make().eval()
    for session in both_ways(export(model, (inputs(5),), dynamic_shapes=(dims,)), tmp_path):
        (name,) = session.input_names
        assert session.output_names == ("output",)
        for size in sizes:
            x = inputs(size)
            with torch.no_grad():
                close(session.run({name: x.numpy()})["output"], model(x))


def test_names_and_nesting_are_kept(tmp_path: Path) -> None:
    model, program = nested()
    for session in both_ways(program, tmp_path):
        assert session.input_names == ("x", "more_a", "more_b_0", "mask")
        assert session.output_names == ("y", "rest_0", "rest_2", "rest_3", "sum")
        for n in (1, 2, 9, 64):
            args, kwargs = arguments(n)
            outputs = session.run(session.signature.feeds(*args, **kwargs))
            found, expected = session.signature.nested(outputs), model(*args, **kwargs)
            assert found["rest"][:3] == expected["rest"][:3] == [n, None, 3.5]
            for mine, theirs in (
                (found["y"], expected["y"]),
                (found["rest"][3], args[0]),
                (found["sum"], expected["sum"]),
            ):
                close(mine, theirs.detach())
            assert list(session.run(session.signature.feeds(*args, **kwargs), ["sum"])) == ["sum"]


def test_arguments_that_do_not_nest_alike_are_refused() -> None:
    session = assay.load(nested()[1])
    args, kwargs = arguments(3)
    with pytest.raises(BadFeed, match="not nested as"):
        session.signature.feeds(args[0], {"a": args[0]}, **kwargs)
    with pytest.raises(BadFeed, match="3 was given for an argument that is 2"):
        session.signature.feeds(*args, **{**kwargs, "scale": 3})


def test_dims_keep_their_names_and_ranges(tmp_path: Path) -> None:
    _, program = nested()
    session, from_file = both_ways(program, tmp_path)
    kind = session.source.inputs[0].type
    assert str(kind) == "f32[batch[0..64], 4]"
    output = session.lowered.outputs[0].type
    assert isinstance(kind, TensorType)
    assert isinstance(output, TensorType)
    assert output.shape == kind.shape
    feeds = {name: np.zeros((65, 4), np.float32) for name in session.input_names}
    for each in (session, from_file):
        with pytest.raises(BadFeed, match="dim 0 of the input 'x' is 65, the model takes 0 to 64"):
            each.run(feeds)


def test_symbolic_numbers_are_inputs_and_outputs() -> None:
    class Times(nn.Module):
        def forward(self, x: Tensor, n: int) -> tuple[Tensor, int]:
            return x * n, n * x.shape[0]

    session = assay.load(export(Times(), (torch.ones(3), 5), dynamic_shapes=({0: Dim("k")}, Dim.DYNAMIC)))
    outputs = session.run({"x": np.ones(4, np.float32), "n": 7})
    assert outputs["output_0"].tolist() == [7.0] * 4
    assert session.signature.nested(outputs)[1] == 28


def test_weights_are_the_sessions_own_and_protected() -> None:
    model = nn.Linear(4, 4)
    session = assay.load(export(model, (torch.randn(2, 4),)))
    weight = next(array for array in session.source.constants.values() if array.shape == (4, 4))
    assert not np.shares_memory(weight, model.weight.detach().numpy())
    with pytest.raises(ValueError, match="read-only"):
        weight[0, 0] = 1


def test_buffers_that_change_are_state(tmp_path: Path) -> None:
    program = export(Counter(), (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n")},))
    for session in both_ways(program, tmp_path):
        model = Counter()
        assert session.input_names == ("x",)
        assert set(session.state) == {"b_calls", "b_mean"}
        for n in (5, 2, 8):
            x = torch.randn(n, 3)
            expected = model(x)
            session.observe({"x": x.numpy()})
            session.profile({"x": x.numpy()})
            for mine, theirs in zip(session.run({"x": x.numpy()}).values(), expected, strict=True):
                close(mine, theirs)
        assert session.state["b_calls"] == 3
        close(session.state["b_mean"], model.mean)
        session.reset()
        assert session.state["b_calls"] == 0
    assert program.state_dict["calls"] == 0


def test_arguments_that_change_are_changed() -> None:
    session = assay.load(export(Cache(), (torch.ones(2), torch.zeros(2))))
    assert session.output_names == ("output_0", "output_1")
    cache = np.zeros(2, np.float32)
    for calls in (1, 2):
        before, twice = session.run({"x": np.ones(2, np.float32), "cache": cache}).values()
        assert (before[0], twice[0], cache[0]) == (calls - 1, 2 * calls, calls)
    protected = np.zeros(2, np.float32)
    protected.flags.writeable = False
    for unwritable in ([0.0, 0.0], protected):
        with pytest.raises(BadFeed, match="changes its input 'cache'"):
            session.run({"x": np.ones(2, np.float32), "cache": unwritable})


def test_what_a_session_offers() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    session = assay.load(export(model, (torch.randn(2, 4),)))
    feeds = {"input": np.ones((2, 4), np.float32)}
    told = session.explain()
    assert {node.target for node in told.nodes} == {"reference"}
    assert "aten.relu.default" in {node.source for node in told.nodes}
    seen = session.observe(feeds, ["relu", "output"])
    np.testing.assert_array_equal(seen["relu"], seen["output"])
    assert {time.source for time in session.profile(feeds)} >= {"aten.relu.default"}


def test_what_has_no_lowering_is_run_by_torch_and_said() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.aten._foobar.default(x) + 1

    session = assay.load(export(Odd(), (torch.randn(2, 4),)))
    reasons = {node.reason for node in session.explain().nodes if node.op == "opaque"}
    assert reasons == {"aten._foobar.default has no lowering"}
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(session.run({"x": x})["output"], x + 1)


@pytest.mark.parametrize(
    ("feeds", "says"),
    [
        ({}, "the input 'x' is missing"),
        ({"x": np.zeros((3, 4), np.float64)}, "the input 'x' is f64, the model takes f32"),
        ({"x": np.zeros(3, np.float32)}, "the input 'x' has 1 dims"),
        ({"x": np.zeros((3, 5), np.float32)}, "dim 1 of the input 'x' is 5, the model takes 4"),
        ({"x": torch.zeros((3, 4), dtype=torch.bfloat16)}, "the input 'x' cannot be read as an array"),
        ({"y": np.zeros((3, 4), np.float32)}, "the model has no input 'y'"),
    ],
)
def test_a_feed_that_does_not_fit_is_one_clear_error(feeds: dict[str, Any], says: str) -> None:
    session = assay.load(export(Counting(), (torch.zeros(3, 4),)))
    with pytest.raises(BadFeed, match=says):
        session.run(feeds)


class Counting(nn.Module):
    """The sum of a matrix."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


# --- files


def saved(folder: Path) -> Path:
    path = folder / "model.pt2"
    torch.export.save(nested()[1], path)
    return path


def test_a_damaged_file_is_one_clear_error(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    for damaged in (b"", content[:1000], content[: len(content) // 2], b"no archive" * 50):
        path.write_bytes(damaged)
        with pytest.raises(ImportFailed) as caught:
            assay.load(path)
        assert caught.value.where
        assert caught.value.hint


def test_files_of_other_kinds_get_a_hint(tmp_path: Path) -> None:
    weights, script = tmp_path / "weights.pt", tmp_path / "script.pt"
    torch.save(nn.Linear(2, 2).state_dict(), weights)
    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), str(script))
    with pytest.raises(ImportFailed, match=r"holds weights and no graph[\s\S]*torch\.export\.save"):
        assay.load(weights)
    with pytest.raises(ImportFailed, match=r"TorchScript archive[\s\S]*torch\.export\.save"):
        assay.load(str(script))
    with pytest.raises(NotFound, match="there is no model file"):
        assay.load(tmp_path / "none.pt2")
    with pytest.raises(ImportFailed, match="a Linear is no model that can be loaded"):
        assay.load(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_control_flow() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    session = assay.load(export(Branching(), (torch.ones(3),)))
    for x in (torch.ones(3), -torch.ones(3)):
        np.testing.assert_array_equal(session.run({"x": x.numpy()})["output"], Branching()(x).numpy())


def test_bodies_without_a_lowering_are_refused_with_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch does not run what a file holds."""

    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    monkeypatch.delitem(registry._TABLE, "aten.higher_order.cond")
    with pytest.raises(ImportFailed, match="'cond', an op with bodies"):
        assay.load(export(Branching(), (torch.ones(3),)))


def test_onnx_files_load_the_same_way(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", kinds[:1], kinds[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "m.onnx")
    session = assay.load(tmp_path / "m.onnx")
    assert session.signature is None
    assert session.run({"x": np.array([-1, 2], np.float32)})["y"].tolist() == [0, 2]


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--random", "0", "--dim", "{dim}=3"],
        ["inspect"],
        ["inspect", "--level", "core"],
        ["compare", "reference", "reference:decomposed", "--random", "0"],
    ],
    ids=" ".join,
)
def test_the_command_line_takes_programs(words: list[str], tmp_path: Path) -> None:
    path = saved(tmp_path)
    (dim,) = {str(dim) for dim in _dims(path)}
    command, *rest = (word.format(dim=dim) for word in words)
    done = subprocess.run(
        [sys.executable, "-m", "assay.cli", command, str(path), *rest], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def _dims(path: Path) -> set[str]:
    from assay.cli.inputs import symbolic_dims
    from assay.runtime.load import read

    return set(symbolic_dims(read(path).inputs))
