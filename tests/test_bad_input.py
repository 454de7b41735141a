"""Damaged and hostile models give a typed error with a place and a hint; nothing crashes, hangs or allocates first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import assay
from assay.errors import AssayError, FileMissing, ImportFailed, LimitExceeded
from assay.evidence.mutate.corpus import corpus
from assay.evidence.mutate.mutations import RAW, STRUCTURED
from assay.evidence.mutate.run import TIGHT, attempt, random_feeds, run_mutations
from assay.frontends.onnx import load
from assay.limits import Limits
from assay.runtime.session import Session, SessionOptions

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", corpus())
def test_the_models_that_are_damaged_are_sound(name: str) -> None:
    graph = load(corpus()[name], TIGHT)
    assert Session(graph, SessionOptions(limits=TIGHT)).run(random_feeds(graph, 0))


def test_mutants_run_or_are_refused() -> None:
    report = run_mutations(1500, seed=20, target="reference")
    assert report.total == 1500
    assert report.failures == []
    tried = {kind for kind, _ in report.counts}
    assert tried == {mutation.__name__ for mutation in (*STRUCTURED, *RAW)}


def test_a_failure_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: an untyped error, and an error without a place, are failures."""

    def untyped(data: bytes, limits: Limits) -> Any:
        raise KeyError("oops")

    def placeless(data: bytes, limits: Limits) -> Any:
        raise ImportFailed("somewhere something is wrong")

    for broken in (untyped, placeless):
        monkeypatch.setattr("assay.evidence.mutate.run.load", broken)
        assert attempt(0, "any", b"", "reference").verdict == "failed"


def run(proto: onnx.ModelProto | bytes, **feeds: Any) -> Any:
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    return assay.InferenceSession(data, limits=TIGHT).run(None, feeds)


def one(op: str, inputs: dict[str, Any], outputs: int = 1, **attrs: Any) -> onnx.ModelProto:
    """A model of one node whose inputs are all initializers."""
    weights = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in inputs.items()]
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, list(inputs), names, "culprit", **attrs)
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info(n) for n in names], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


F = np.float32


def floats(*values: float) -> Any:
    return np.array(values, F)


HUGE = np.array([1 << 20, 1 << 20])
BLOW_UPS: dict[str, Callable[[], onnx.ModelProto]] = {
    "expand": lambda: one("Expand", {"x": floats(1), "s": HUGE}),
    "tile": lambda: one("Tile", {"x": floats(1).reshape(1, 1), "r": HUGE}),
    "pad": lambda: one("Pad", {"x": floats(1), "p": np.array([1 << 40, 0])}),
    "range": lambda: one("Range", {"a": np.array(0), "b": np.array(1 << 60), "d": np.array(1)}),
    "constant of shape": lambda: one("ConstantOfShape", {"s": HUGE}),
    "one-hot": lambda: one("OneHot", {"i": np.array([1]), "d": np.array(1 << 50), "v": floats(0, 1)}),
    "broadcast": lambda: one("Add", {"x": np.zeros((1 << 16, 1), F), "y": np.zeros((1, 1 << 16), F)}),
    "matmul": lambda: one("MatMul", {"x": np.zeros((1 << 16, 1), F), "y": np.zeros((1, 1 << 16), F)}),
    "gather": lambda: one("Gather", {"x": np.zeros((1, 1 << 16), F), "i": np.zeros(1 << 16, np.int64)}),
    "resize": lambda: one("Resize", {"x": np.zeros((1, 1, 2, 2), F), "r": floats(), "s": floats(1, 1, 1e6, 1e6)}),
}


@pytest.mark.parametrize("kind", BLOW_UPS)
def test_absurd_sizes_are_refused_before_they_are_made(kind: str) -> None:
    model = BLOW_UPS[kind]()
    started = time.perf_counter()
    with pytest.raises(LimitExceeded) as caught:
        run(model)
    assert "culprit" in caught.value.where
    assert caught.value.hint
    assert time.perf_counter() - started < 5


def test_sizes_that_only_a_run_tells_are_refused_too() -> None:
    graph = helper.make_graph(
        [helper.make_node("Expand", ["x", "s"], ["y"], "culprit")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
            helper.make_tensor_value_info("s", TensorProto.INT64, [2]),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert run(model, x=floats(1), s=np.array([2, 3]))[0].shape == (2, 3)
    with pytest.raises(LimitExceeded, match="culprit"):
        run(model, x=floats(1), s=HUGE)


def test_a_loop_that_never_ends_is_stopped() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[1] x) => (y) {
            go = Constant <value = bool {1}> ()
            none = Constant <value = int64 {9223372036854775807}> ()
            y = Loop (none, go, x) <body = b (int64 i, bool c, float[1] s) => (bool d, float[1] t) {
                d = Identity(c)
                t = Add(s, s)
            }>
        }"""
    with pytest.raises(LimitExceeded, match="ran 2000 times"):
        run(onnx.parser.parse_model(text), x=floats(1))


def test_deeply_nested_protobuf_is_refused() -> None:
    """Messages nested far deeper than the parser allows, made without it."""
    payload = b""
    for _ in range(3000):  # graph → node → attribute → graph, each in its field's wrapping
        for tag in (0x32, 0x2A, 0x0A):
            payload = bytes([tag]) + _varint(len(payload)) + payload
    with pytest.raises(ImportFailed):
        load(b"\x3a" + _varint(len(payload)) + payload)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def external_model(entries: dict[str, str], count: int = 4) -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[count], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    node = helper.make_node("Neg", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


OUTSIDE = [
    ({"location": "../secret.bin"}, "outside"),
    ({"location": "link.bin"}, "outside"),
    ({"location": "folder/../../secret.bin"}, "outside"),
    ({"location": "linked_folder/secret.bin"}, "outside"),
    ({"location": "/etc/hostname"}, "relative"),
    ({"location": ""}, "relative"),
    ({"location": "missing.bin"}, "does not exist"),
    ({"location": "."}, "does not exist"),
    ({"location": "pipe"}, "does not exist"),
    ({"location": "n" * 5000}, "does not exist"),
    ({"location": "n/" * 5000}, "does not exist"),
    ({"location": "loop/w.bin"}, "does not exist"),
    ({"location": "zero\0.bin"}, "no path|null"),
    ({"location": "w.bin", "offset": "8"}, "past the end"),
    ({"location": "w.bin", "offset": "99999999999999999999999"}, "offset"),
    ({"location": "w.bin", "offset": "-8"}, "offset"),
    ({"location": "w.bin", "length": "4"}, "bytes where"),
    ({"location": "w.bin", "length": "x"}, "length"),
]


@pytest.mark.parametrize(
    ("entries", "complaint"), OUTSIDE, ids=lambda v: v if isinstance(v, str) else v["location"][:40]
)
def test_external_data_stays_in_its_folder(tmp_path: Path, entries: dict[str, str], complaint: str) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(b"\1" * 64)
    (folder / "w.bin").write_bytes(b"\1" * 16)
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    os.symlink(tmp_path, folder / "linked_folder")
    os.symlink(folder / "loop", folder / "loop")
    os.mkfifo(folder / "pipe")
    (folder / "model.onnx").write_bytes(external_model(entries))
    with pytest.raises(ImportFailed, match=complaint) as caught:
        load(folder / "model.onnx")
    assert "tensor 'w'" in caught.value.where


def test_a_link_within_the_folder_is_fine(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    os.symlink(tmp_path / "w.bin", tmp_path / "alias.bin")
    (tmp_path / "model.onnx").write_bytes(external_model({"location": "alias.bin"}))
    np.testing.assert_array_equal(assay.InferenceSession(tmp_path / "model.onnx").run(None, {})[0], -np.arange(4.0))


def test_a_huge_declared_tensor_is_not_allocated(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"")
    (tmp_path / "model.onnx").write_bytes(external_model({"location": "w.bin"}, count=1 << 60))
    with pytest.raises(LimitExceeded, match="exceeds"):
        load(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"not a model at all", b"PK\3\4" + b"\0" * 100, os.urandom(0) + bytes(range(256))]
)
def test_what_is_no_model_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(ImportFailed) as caught:
        load(data)
    assert caught.value.where
    assert caught.value.hint


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileMissing, match=r"no-such\.onnx"):
        assay.InferenceSession("no-such.onnx")


def test_every_limit_is_documented() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    for each in fields(Limits):
        assert f"| `{each.name}` | {getattr(Limits(), each.name):,} |" in text


def test_errors_are_one_family() -> None:
    assert issubclass(LimitExceeded, ImportFailed)
    assert issubclass(ImportFailed, AssayError)
