"""A `.pt2` file → exported program, without torch's reader of such files, which trusts them.

The file's records are read here (`frontends/archives.py`), its JSON is checked text by text (`schema.py`), its tensors
are made of raw bytes. torch gets the objects that come out of this and never a byte of the file; nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import sys
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch.export import ExportedProgram

from assay.errors import AssayError, ImportFailed, LimitExceeded
from assay.frontends.archives import ArchiveRecords, rewritten
from assay.frontends.torch.magnitudes import check_magnitudes
from assay.frontends.torch.private import serde
from assay.frontends.torch.private.serde import schema
from assay.frontends.torch.schema import TRUST, build, program_of
from assay.limits import DEFAULT, Limits

_PROGRAM = "models/model.json"
_BYTE_ORDER = "byteorder"
_SAMPLES = "data/sample_inputs/model.pt"
_WEIGHTS = ("data/weights/", "data/weights/model_weights_config.json")
_CONSTANTS = ("data/constants/", "data/constants/model_constants_config.json")

_EXPECTED = re.compile(
    r"archive_format|archive_version|byteorder|\.data/.*|\.format_version|\.storage_alignment|extra/.*|"
    r"models/\w+\.json|data/(weights|constants)/\w+_config\.json|data/weights/weight_\d+|data/constants/tensor_\d+|"
    r"data/sample_inputs/\w+\.pt"
)
"""The names of what a program is made of; only some of these records are read."""
_REFUSED = {
    r"data/aotinductor/": ("compiled code", "export the program without AOTInductor"),
    r"data/(constants|weights)/": ("a pickled object", TRUST),
}
"""What else an archive may hold, and what to do then."""


def read_program(path: Path, limits: Limits = DEFAULT, *, samples: bool = False) -> ExportedProgram:
    """The program in a file of `torch.export.save`; ImportFailed if it is damaged or is more than data.

    With `samples` it has its example inputs, which are read as weights are (`torch.load(weights_only=True)`).
    """
    where = str(path)
    try:
        with path.open("rb") as file, _quiet():
            return _program(ArchiveRecords(file, limits), limits, samples)
    except AssayError as error:
        raise error.located(where) from None
    except MemoryError as error:
        raise LimitExceeded("there is not enough memory to load this", where=where) from error
    except Exception as error:
        text = str(error).partition("\n")[0]
        message = f"this is no program of torch.export, or a damaged one: {type(error).__name__}: {text}"
        raise ImportFailed(message, where=where) from error


def _program(records: ArchiveRecords, limits: Limits, samples: bool) -> ExportedProgram:
    _check_names(records.names())
    _check_byte_order(records)
    program = program_of(json.loads(records.text(_PROGRAM)))
    if len(program.graph_module.graph.nodes) > limits.nodes:
        raise LimitExceeded(f"the program has more than {limits.nodes} nodes", hint="raise Limits.nodes")
    check_magnitudes(program.graph_module.graph)
    weights, constants = (_tensors(records, *place, limits) for place in (_WEIGHTS, _CONSTANTS))
    examples = _examples(records, limits) if samples and _SAMPLES in records.names() else None
    return serde.program_of(program, weights, constants, examples)


@contextmanager
def _quiet() -> Generator[None]:
    """torch logs and warns of what it then raises."""
    logger = logging.getLogger("torch.export")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _check_names(names: list[str]) -> None:
    if _PROGRAM not in names:
        raise ImportFailed("the archive has no program in it", hint="write it with torch.export.save of this torch")
    for name in names:
        if _EXPECTED.fullmatch(name):
            continue
        found = (told for pattern, told in _REFUSED.items() if re.match(pattern, name))
        what, hint = next(found, ("something that belongs to no program", TRUST))
        raise ImportFailed(f"the archive holds {what}: {name[:60]!r}", hint=hint)


def _check_byte_order(records: ArchiveRecords) -> None:
    written = records.text(_BYTE_ORDER) if _BYTE_ORDER in records.names() else sys.byteorder
    if written != sys.byteorder:
        raise ImportFailed("the file was written on a machine of another byte order", hint="export the program here")


# --- tensors


def _tensors(records: ArchiveRecords, folder: str, config: str, limits: Limits) -> dict[str, torch.Tensor]:
    """The tensors that a configuration lists. Those of one record share their memory."""
    listed = cast(schema.PayloadConfig, build(schema.PayloadConfig, json.loads(records.text(config))))
    content: dict[str, bytearray] = {}
    found: dict[str, torch.Tensor] = {}
    for name, payload in listed.config.items():
        if payload.use_pickle or payload.tensor_meta is None:
            raise ImportFailed(f"'{name}' is a pickled object", hint=TRUST)
        record = payload.path_name
        if record not in content:
            content[record] = records.data(f"{folder}{record}")
        try:
            tensor = _tensor(content[record], payload.tensor_meta, limits)
        except AssayError as error:
            raise error.located(f"tensor '{name}'") from None
        grad = payload.tensor_meta.requires_grad
        found[name] = torch.nn.Parameter(tensor, requires_grad=grad) if payload.is_param else tensor
    return found


def _tensor(data: bytearray, meta: schema.TensorMeta, limits: Limits) -> torch.Tensor:
    if meta.device.type != "cpu" or meta.layout != schema.Layout.Strided:
        raise ImportFailed(f"a tensor is on '{meta.device.type}', or sparse", hint="export the model on the CPU")
    dtype = serde.dtype_of(meta.dtype)
    sizes, strides = [_fixed(size) for size in meta.sizes], [_fixed(stride) for stride in meta.strides]
    offset, width = _fixed(meta.storage_offset), dtype.itemsize
    if min([*sizes, *strides, offset], default=0) < 0 or len(sizes) != len(strides):
        raise ImportFailed(f"a tensor has the sizes {sizes} and the strides {strides}")
    if len(sizes) > limits.rank or math.prod(sizes) * width > limits.tensor_bytes:
        raise LimitExceeded(f"a tensor has the sizes {sizes}", hint="check the file, or raise Limits.tensor_bytes")
    needed = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
    if 0 not in sizes and (needed * width > len(data) or len(data) % width):
        raise ImportFailed(f"the data has {len(data)} bytes where its sizes and strides need {needed * width}")
    if 0 in sizes:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).as_strided(sizes, strides, offset)


def _fixed(size: schema.SymInt) -> int:
    if size.type != "as_int":
        raise ImportFailed("a tensor of the archive has a symbolic size")
    return cast(int, size.value)


# --- example inputs


def _examples(records: ArchiveRecords, limits: Limits) -> Any:
    """The example inputs, which lie in an archive of their own: torch gets one with the same records and no more."""
    inner = ArchiveRecords(io.BytesIO(records.data(_SAMPLES)), limits)
    content: Mapping[str, bytearray] = {name: inner.data(name) for name in inner.names()}
    try:
        return torch.load(rewritten(content), weights_only=True)
    except Exception as error:
        raise ImportFailed("the example inputs hold more than tensors", where=_SAMPLES, hint=TRUST) from error
