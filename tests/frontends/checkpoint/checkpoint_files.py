"""Small checkpoints of every kind, written by those who define it."""

from __future__ import annotations

import argparse
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.torch import save_file

FACTS: dict[str, Any] = {
    "general.name": "a small one",
    "toy.layers": 3,
    "toy.scale": 0.5,
    "toy.tied": True,
    "toy.words": ["a", "ü", ""],
    "toy.scores": [0.5, -1.0],
    "toy.kinds": [1, 2, 3],
}


def write_gguf(path: Path) -> None:
    """Facts of several kinds, tensors in plain and in quantised form."""
    writer = GGUFWriter(path, "toy")
    for name, value in FACTS.items():
        add: Any = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool}
        add.get(type(value), writer.add_array)(name, value)
    rng = np.random.default_rng(1)
    values = rng.standard_normal((6, 512)).astype(np.float32)
    writer.add_tensor("plain", values)
    writer.add_tensor("half", values[:, :3].astype(np.float16))
    writer.add_tensor("whole", np.arange(5, dtype=np.int32))
    for kind in ("BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        writer.add_tensor(kind, quantize(values, GGMLQuantizationType[kind]), raw_dtype=GGMLQuantizationType[kind])
    for kind, size in (("Q2_K", 84), ("Q3_K", 110), ("Q4_K", 144), ("Q5_K", 176), ("Q6_K", 210)):
        packed = rng.integers(0, 60, (6, 2 * size), dtype=np.uint8)
        writer.add_tensor(kind, packed, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def torch_tensors() -> dict[str, torch.Tensor]:
    """A tensor of each dtype that both torch and checkpoints have."""
    plain = torch.arange(24).reshape(2, 3, 4)
    kinds = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    return {kind: plain.to(getattr(torch, kind)) for kind in kinds}


def write_safetensors(path: Path) -> None:
    """Tensors of all dtypes, an empty one and one without axes."""
    eight = {name: torch.randn(5).to(getattr(torch, name)) for name in ("float8_e4m3fn", "float8_e5m2")}
    more = {"complex": torch.randn(3, dtype=torch.complex64), "none": torch.zeros(0, 3), "one": torch.tensor(2.5)}
    save_file({**torch_tensors(), **eight, **more}, path, metadata={"format": "pt"})


def state() -> dict[str, Any]:
    """Tensors in containers: some share memory, some lie in it with gaps or turned."""
    whole = torch.arange(60.0).reshape(5, 12)
    model = OrderedDict(
        {"whole": whole, "turned": whole.t(), "part": whole[1:, ::3], "weight": torch.nn.Parameter(torch.ones(2))}
    )
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict()
    complex_ = {"c64": torch.randn(2, dtype=torch.complex64), "c128": torch.randn(2, dtype=torch.complex128)}
    rest = {"epoch": 7, "rate": 0.25, "name": "ü", "flag": True, "nothing": None, "sizes": torch.Size([2, 3])}
    return {"model": model, "module": module, **torch_tensors(), **complex_, "none": torch.zeros(0, 3), "more": [rest]}


def write_torch(path: Path) -> None:
    """Today's format."""
    torch.save(state(), path)


def write_old_torch(path: Path) -> None:
    """The format before torch 1.6."""
    torch.save(state(), path, _use_new_zipfile_serialization=False)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "small.gguf": write_gguf,
    "small.safetensors": write_safetensors,
    "small.pt": write_torch,
    "old.pt": write_old_torch,
}


class Calls:
    """Pickled, it names a function and what it is called with."""

    def __init__(self, function: Any, *given: Any) -> None:
        self._reduced = function, given

    def __reduce__(self) -> Any:
        return self._reduced


def namespace() -> Any:
    """A harmless object that is no tensor."""
    return argparse.Namespace(rate=1)
