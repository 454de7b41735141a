"""What workers and their owners send each other comes as it was, or as a typed error."""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import process_services as services
import pytest
from processes.common import SMALL, died, same

from assay.errors import BadArgument
from assay.ir import dtypes
from assay.ops.samples import draw
from assay.processes import Worker, WorkerLimits, wire

# --- the wire

PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    -(2**200),
    1.5,
    float("inf"),
    -0.0,
    1 - 2j,
    "",
    "héllo \ud800",
    b"",
    b"\x00\xff",
    b"x" * (2 * wire.SHARED),
    [],
    (),
    {},
    [1, [2.0, ["three"]], (4, None)],
    {"a": 1, 2: (3, {b"k": False})},
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:30])
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    body, buffers = wire.encode(value)
    found = wire.decode(memoryview(body), buffers)
    assert repr(found) == repr(value)


def test_a_nan_comes_back() -> None:
    body, buffers = wire.encode(float("nan"))
    assert np.isnan(wire.decode(memoryview(body), buffers))


def test_the_encoding_has_every_dtype() -> None:
    assert {each.numpy.name for each in dtypes.ALL} == {*wire.DTYPES, "object"}


SHAPES = [(), (0,), (3,), (2, 0, 4), (2, 3, 4)]


@pytest.fixture(scope="module")
def echo() -> Iterator[Worker]:
    with Worker(services.echo, limits=WorkerLimits(seconds=60)) as worker:
        yield worker


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_arrays_of_every_dtype(dtype: dtypes.DType, echo: Worker) -> None:
    rng = np.random.default_rng(0)
    arrays = [draw(rng, dtype, shape) for shape in SHAPES]
    arrays += [draw(rng, dtype, (4, 6)).T, draw(rng, dtype, (6, 6))[::2, ::-1]]
    for array, found in zip(arrays, echo.ask(arrays), strict=True):
        same(array, found)


def test_large_arrays(echo: Worker) -> None:
    rng = np.random.default_rng(0)
    sizes = (SMALL - 1, SMALL, 3 * SMALL + 5)
    arrays = [rng.random(size) for size in sizes] + [
        rng.random((3000, 1000)).T[::2],
        np.ones(8 << 20, ml_dtypes.bfloat16),
    ]
    found = echo.ask({"arrays": arrays, "small": np.arange(3)})
    for array, other in zip(arrays, found["arrays"], strict=True):
        same(array, other)
        other[...] = 0  # it is ours: what was sent stays
    assert arrays[1].any()
    same(np.arange(3), found["small"])


def test_scalars_and_other_byte_orders(echo: Worker) -> None:
    found = echo.ask((np.float32(2.5), np.arange(3, dtype=">i4"), ml_dtypes.bfloat16(3)))
    assert type(found[0]) is np.float32
    assert found[1].tolist() == [0, 1, 2]
    assert found[1].dtype == np.dtype("i4")
    assert found[2] == 3


def test_arrays_are_copied_where_descriptors_run_out(monkeypatch: pytest.MonkeyPatch, echo: Worker) -> None:
    def mappings() -> list[str]:
        return [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:assay " in f"{line} "]

    kept = echo.ask(np.ones(SMALL))
    assert mappings()
    del kept
    gc.collect()
    monkeypatch.setattr(wire.resource, "getrlimit", lambda kind: (8, 8))
    kept = echo.ask(np.ones(SMALL))
    assert not mappings()
    assert kept.sum() == SMALL
    assert kept.flags.writeable


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, np.array([object()]), np.zeros(2, "M8[s]"), np.zeros(2, "U3"), [[{"a": (1).__add__}]]]
)
def test_what_is_no_plain_data_is_refused(value: Any, echo: Worker) -> None:
    echo.start()
    before = echo.pid
    with pytest.raises(BadArgument, match="no plain data") as caught:
        echo.ask(value, what="this one")
    assert caught.value.where == "this one"
    assert (echo.ask(1), echo.pid) == (1, before)


def test_what_contains_itself_is_refused(echo: Worker) -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(BadArgument, match="nested too deeply"):
        echo.ask(value)


def frame(body: bytes, *, magic: bytes = b"AsW1", kind: int = wire.REPLY, codec: int = 0, count: int = 0) -> bytes:
    return struct.pack("<4sBBHIQ", magic, kind, codec, 0, count, len(body)) + body


MALFORMED = {
    "other": b"HTTP/1.1 200 OK\r\n\r\n........",
    "magic": frame(b"n", magic=b"AsW0"),
    "kind": frame(b"n", kind=9),
    "no error": frame(b"n", kind=wire.FAILED),
    "no reply": frame(b"n", kind=wire.READY),
    "codec": frame(b"N.", codec=1),
    "no codec": frame(b"N.", codec=7),
    "many buffers": frame(b"", count=1 << 30),
    "long": struct.pack("<4sBBHIQ", b"AsW1", 3, 0, 0, 0, 1 << 60),
    "no tag": frame(b"\xff"),
    "empty": frame(b""),
    "short": frame(b"i\x00"),
    "text": frame(b"s" + struct.pack("<Q", 100) + b"abc"),
    "bytes": frame(b"s" + struct.pack("<Q", 1) + b"\xff"),
    "count": frame(b"l" + struct.pack("<Q", 1 << 62)),
    "after": frame(b"nn"),
    "key": frame(b"m" + struct.pack("<Q", 1) + b"l" + struct.pack("<Q", 0) + b"n"),
    "no buffer": frame(b"a" + struct.pack("<Q", 5)),
    "deep": frame((b"l" + struct.pack("<Q", 1)) * 100_000),
    "outside": frame(struct.pack("<Qq", 100, 0) + b"n", count=1).replace(
        struct.pack("<Q", 17), struct.pack("<Q", 1), 1
    ),
    "inline too large": struct.pack("<4sBBHIQ", b"AsW1", 3, 0, 0, 1, 1) + struct.pack("<Qq", 1 << 40, -1) + b"n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_frames_are_typed_errors(data: bytes, deadly: Worker) -> None:
    started = time.monotonic()
    error = died(deadly, "write", data, True)
    assert error.ending.how == "protocol"
    assert time.monotonic() - started < 15
    assert deadly.ask(("garbage",)) == "fine"


def test_half_a_frame_is_no_hang() -> None:
    with Worker(services.deadly, limits=WorkerLimits(seconds=0.5)) as worker:
        assert died(worker, "write", frame(b"nnnn")[:-2], True).ending.how == "time"


def test_random_bodies_are_typed_errors() -> None:
    rng = np.random.default_rng(0)
    right = bytes(wire.encode([1, "two", {"three": (4.0, b"five")}, np.arange(6)])[0])
    for _ in range(2000):
        body = bytearray(right)
        for at in rng.integers(0, len(body), 3):
            body[at] = rng.integers(0, 256)
        with suppress(wire.BadFrame):
            wire.decode(memoryview(body), [memoryview(bytearray(48))])


def test_what_a_worker_prints_does_not_disturb(deadly: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    assert deadly.ask(("garbage",)) == "fine"
    assert capfd.readouterr() == ("", "")
    with Worker(services.deadly, shown=True) as shown:
        assert shown.ask(("garbage",)) == "fine"
    out, err = capfd.readouterr()
    assert out == ""
    assert "garbage" in err


def test_pickles_where_both_ends_agree() -> None:
    value = {"a": frozenset({1}), "b": np.arange(SMALL * 2.0), "c": Path("x")}
    with Worker(services.echo, pickled=True) as worker:
        found = worker.ask(value)
    assert (found["a"], found["c"]) == (value["a"], value["c"])
    same(value["b"], found["b"])
