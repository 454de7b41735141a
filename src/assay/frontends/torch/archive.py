"""A `.pt2` file → exported program. What torch's own reader would execute is refused before it sees the file."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
import zipfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, cast

import torch
from torch.export import ExportedProgram

from assay.errors import AssayError, ImportFailed

_TRUST = "if you trust the file, load it with torch.export.load and give assay.load the program"

_EXPRESSION = re.compile(r"[\w\s+\-*/%(),<>=!&|~]*")
_WORDS = re.compile(
    r"[suzif]+\d+|\d+|True|False|int_oo|Symbol|Integer|Add|Mul|Pow|Min|Max|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|"
    r"CeilToInt|FloorToInt|RoundToInt|TruncToInt|IntTrueDiv|FloatTrueDiv|ToFloat|Where|Abs|Eq|Ne|Lt|Le|Gt|Ge|And|Or|"
    r"Not|positive|integer|real"
)
"""torch hands the texts of symbolic sizes to a parser that evaluates them as Python: only plain arithmetic passes."""

_TARGETS = ("torch.ops.", "_operator.", "math.", "torch.sym_", "torch._sym_")


def read_program(path: Path) -> ExportedProgram:
    """The program in a file of `torch.export.save`; ImportFailed if it is damaged or would run code when read."""
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check(archive)
        with _quiet():
            program = torch.export.load(path)
        cast(Any, program)._guards_code = []  # Python text, which torch would compile; sessions check feeds themselves
        return program
    except AssayError as error:
        raise error.located(where) from None
    except Exception as error:
        text = str(error).partition("\n")[0]
        message = f"this is no program of torch.export, or a damaged one: {type(error).__name__}: {text}"
        raise ImportFailed(message, where=where) from error


@contextmanager
def _quiet() -> Generator[None]:
    """torch's reader logs what it then raises."""
    logger = logging.getLogger("torch.export")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _check(archive: zipfile.ZipFile) -> None:
    entries = {_inside(name): name for name in archive.namelist()}
    if not any(name.startswith("models/") for name in entries):
        raise ImportFailed("the archive has no program in it", hint="write it with torch.export.save of this torch")
    for name, full in entries.items():
        for pattern, check in _CHECKS.items():
            if re.match(pattern, name):
                check(name, archive.read(full))


def _inside(name: str) -> str:
    """A name without the folder that all of an archive lies in."""
    return "/".join(PurePosixPath(name).parts[1:])


def _refuse_native(name: str, content: bytes) -> None:
    raise ImportFailed(f"the archive holds compiled code: {name}", hint="export the program without AOTInductor")


def _refuse_object(name: str, content: bytes) -> None:
    raise ImportFailed(f"the archive holds a pickled object: {name}", hint=_TRUST)


def _check_pickle(name: str, content: bytes) -> None:
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        raise ImportFailed(f"the archive holds pickled objects that are no tensors: {name}", hint=_TRUST) from error


def _check_config(name: str, content: bytes) -> None:
    for entry in json.loads(content)["config"].values():
        if entry["use_pickle"]:
            raise ImportFailed(f"the archive holds pickled tensors: {name}", hint=_TRUST)


def _check_model(name: str, content: bytes) -> None:
    for key, text in _texts(json.loads(content)):
        rule = _RULES.get(key)
        if rule is not None and not rule(text):
            raise ImportFailed(f"the program's {key} is not plain: {text[:60]!r}", where=name, hint=_TRUST)


def _texts(item: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a JSON document with its key."""
    if isinstance(item, dict):
        for name, part in cast("dict[str, Any]", item).items():
            yield from _texts(part, name)
    elif isinstance(item, list):
        for part in cast("list[Any]", item):
            yield from _texts(part, key)
    elif isinstance(item, str):
        yield key, item


def _is_arithmetic(text: str) -> bool:
    plain = text.replace("'", "")
    words: list[str] = re.findall(r"\w+", plain)
    return bool(_EXPRESSION.fullmatch(plain)) and all(_WORDS.fullmatch(word) for word in words)


def _is_operator(text: str) -> bool:
    return text.startswith(_TARGETS)


def _is_nesting(text: str) -> bool:
    """The text of a pytree with nothing in it that names a module to import."""
    return not re.search(r"defaultdict|__enum__|\\u", text)


def _is_identifier(text: str) -> bool:
    """A name that torch may write into Python code as it is."""
    return bool(re.fullmatch(r"[\w.]*", text))


_NAMES = ("name", "as_name", "forward_arg_names", "fqn", "parameter_name", "buffer_name", "tensor_constant_name")
_RULES = {
    "expr_str": _is_arithmetic,
    "target": _is_operator,
    "in_spec": _is_nesting,
    "out_spec": _is_nesting,
    **dict.fromkeys(_NAMES, _is_identifier),
}

_CHECKS = {
    r"data/aotinductor/": _refuse_native,
    r"data/constants/(custom_obj|opaque_obj)": _refuse_object,
    r"data/(weights|constants)/[^/]*\.pt$": _refuse_object,
    r"data/(weights|constants)/[^/]*_config\.json$": _check_config,
    r"data/sample_inputs/": _check_pickle,
    r"models/.*\.json$": _check_model,
}
"""What is looked at in an archive, by the names of its files."""
