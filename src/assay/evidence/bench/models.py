"""What every contestant of a benchmark is given: the model in the forms that they take, inputs, and the right outputs.

Right is what torch computes in f64 (of an ONNX file: the oracle, carrying f64). How far the same computation in the
model's own dtypes is from that is the noise floor that errors are judged by. Of an ONNX file, right can also be what
a peer gives, which is code that nobody here wrote; the noise floor is then still the oracle's.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from assay.errors import AssayError, BadFeed
from assay.evidence.compare.arrays import closeness, epsilon
from assay.evidence.compare.models import NOISE_FACTOR, allowed_error
from assay.evidence.compare.noise import ROUND_INSIDE
from assay.evidence.engines import engine
from assay.evidence.reasons import summary
from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ops.registry import widen
from assay.runtime.load import load
from assay.runtime.session import Session, SessionOptions

_STEP = 1 / 255
"""How far apart neighbours in 8 bits are, in parts of the largest number."""
_ONES = 2.0
"""Units in the last place of 1 that an output may be off, be it ever so small: sigmoids are no better everywhere."""


@dataclass(frozen=True, slots=True)
class BenchModel:
    """A model to run: the name of a workload of the zoo, or a file.

    An ONNX file comes with its inputs by name; `judge` is the peer whose outputs are right, if not the oracle's are.
    """

    name: str
    file: Path | None = None
    feeds: Mapping[str, Any] | None = None
    judge: str | None = None

    @property
    def is_onnx(self) -> bool:
        """True for an ONNX file."""
        return self.file is not None and self.file.suffix != ".pt2"


@dataclass(frozen=True, slots=True)
class Material:
    """A model in its forms: the torch `module`, the exported `program`, the `onnx` file; `missing` says what failed."""

    subject: BenchModel
    folder: Path
    program: Path | None = None
    onnx: Path | None = None
    missing: dict[str, str] = field(default_factory=dict[str, str])

    def has(self, form: str) -> bool:
        """True if there is the model in this form."""
        return not self.subject.is_onnx if form == "module" else getattr(self, form) is not None

    def why(self, forms: Sequence[str]) -> str:
        """Why there is no such form."""
        reasons = [self.missing[form] for form in forms if form in self.missing]
        return "; ".join(reasons) or f"the model has no form '{forms[0]}'"

    def inputs(self) -> list[Array]:
        """The inputs in the model's order."""
        with np.load(self.folder / "inputs.npz", allow_pickle=False) as archive:
            return [archive[str(index)] for index in range(len(archive))]


@dataclass(frozen=True, slots=True)
class OutputError:
    """The largest error in parts of an output's largest element, what rounding explains, and what is wrong.

    The errors are None where an output cannot be compared at all.
    """

    error: float | None
    allowed: float | None
    complaint: str = ""


@dataclass(frozen=True, slots=True)
class RightOutputs:
    """The right outputs: as the model's own dtypes have them, and in f64.

    `allowed` says how far each may be off, where that does not follow from how far the two are apart.
    """

    plain: Sequence[Array]
    exact: Sequence[Array]
    allowed: Sequence[float] | None = None

    def judge(self, outputs: Sequence[Array]) -> OutputError:
        """How far some outputs are off."""
        if len(outputs) != len(self.plain):
            return OutputError(None, None, f"{len(outputs)} outputs instead of {len(self.plain)}")
        allowed = self.allowed or [_rounding(*each) for each in zip(self.plain, self.exact, strict=True)]
        parts = [_judged(*each) for each in zip(outputs, self.plain, self.exact, allowed, strict=True)]
        complaint = next((part.complaint for part in parts if part.complaint), "")
        worst = max(parts, key=lambda part: part.error if part.error is not None else math.inf)
        return OutputError(worst.error, worst.allowed, complaint)


def _rounding(plain: Array, exact: Array) -> float:
    """How far off an output may be because of rounding."""
    return allowed_error(plain, closeness(widen(plain), exact).max_abs)


def _size(exact: Array) -> float:
    """The largest element of an output, 1 where there is no such."""
    size = float(np.abs(exact).max(initial=0.0)) if exact.dtype.kind == "f" else 1.0
    return size if size and np.isfinite(size) else 1.0


def _judged(output: Array, plain: Array, exact: Array, allowed: float) -> OutputError:
    if output.dtype != plain.dtype or output.shape != plain.shape:
        kinds = [f"{dtypes.of(each)}{list(each.shape)}" for each in (output, plain)]
        return OutputError(None, None, f"an output is {kinds[0]} instead of {kinds[1]}")
    wide: Array = widen(output)
    found, size = closeness(wide, exact, absolute=allowed), _size(exact)
    return OutputError(found.max_abs / size, allowed / size, "" if found.ok else str(found))


def make_material(subject: BenchModel, folder: Path, with_onnx: bool) -> tuple[Material, RightOutputs]:
    """Everything about a subject, on disk in `folder`. Takes as much memory as it likes: give it its own process."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _of_onnx(subject, folder) if subject.is_onnx else _of_torch(subject, folder, with_onnx)


def _of_onnx(subject: BenchModel, folder: Path) -> tuple[Material, RightOutputs]:
    path, feeds = cast(Path, subject.file), dict(subject.feeds or {})
    sessions = [load(path, SessionOptions(target="reference", mode=mode)) for mode in ("exact", "precise")]
    plain, exact = ([cast(Array, each) for each in session.run(feeds).values()] for session in sessions)
    _save(folder, [np.asarray(feeds[name]) for name in sessions[0].input_names])
    truth = RightOutputs(plain, [widen(each) for each in exact])
    if subject.judge is not None:
        theirs = engine(subject.judge).load(path).run(feeds)
        truth = _beside(truth, list(theirs.values()), sessions[0])
    missing = {"module": "there is no torch model of an ONNX file"}
    return Material(subject, folder, None, path, missing), truth


def _beside(oracle: RightOutputs, theirs: Sequence[Array], session: Session) -> RightOutputs:
    """A peer's outputs as the right ones: either may be as far from the truth as rounding in the oracle explains.

    Where activations are rounded to 8 bits, one that falls the other way moves what follows by steps of these.
    """
    coarse = any(node.op in ROUND_INSIDE for node in session.explain().nodes)
    noises = [math.inf if coarse else _rounding(*each) for each in zip(oracle.plain, oracle.exact, strict=True)]
    allowed = [_near(*each) for each in zip(theirs, noises, strict=True)]
    return RightOutputs(theirs, [widen(each) for each in theirs], allowed)


def _near(output: Array, noise: float) -> float:
    """How far from a peer's output another may be if both have this noise, at most some steps; 0 for integers."""
    unit = epsilon(dtypes.of(output))
    return 2 * min(noise, NOISE_FACTOR * _STEP * _size(widen(output))) + _ONES * unit if unit else 0.0


def _of_torch(subject: BenchModel, folder: Path, with_onnx: bool) -> tuple[Material, RightOutputs]:
    torch = importlib.import_module("torch")
    with torch.no_grad():
        module, args, kwargs = torch_model(subject)
        _save(folder, arrays((args, kwargs)))
        plain = arrays(module(*args, **kwargs))
        missing: dict[str, str] = {}
        program = subject.file or folder / "model.pt2"
        exported: Any = None
        with _noting("program", missing):
            exported = _exported(subject, module, args, kwargs)
            if subject.file is None:
                torch.export.save(exported, program)
        onnx = folder / "model.onnx"
        if with_onnx and exported is not None:
            with _noting("onnx", missing):
                torch.onnx.export(exported, dynamo=True, verbose=False).save(onnx, external_data=True)
        exact = _exact(module, args, kwargs)
    forms = (None if "program" in missing else program, onnx if onnx.is_file() else None)
    return Material(subject, folder, *forms, missing), RightOutputs(plain, exact)


@contextmanager
def _noting(what: str, notes: dict[str, str]) -> Generator[None]:
    """Notes an exception instead of raising it."""
    try:
        yield
    except Exception as error:
        notes[what] = reason_of(error)


def reason_of(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, AssayError):
        return error.message
    return summary(error)


def torch_model(subject: BenchModel) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The module that eager runs, and the arguments of one call."""
    if subject.file is None:
        from assay.zoo.torch.workloads import WORKLOADS

        workload = WORKLOADS[subject.name]
        module = workload.build()
        return module, (), workload.example(module)
    program = read_program(subject.file)
    if program.example_inputs is None:
        raise BadFeed(f"'{subject.file}' has no example inputs", hint="export the program and save it with them")
    args, kwargs = program.example_inputs
    return program.module(), tuple(args), dict(kwargs)


def read_program(path: Path) -> Any:
    """The program in a file of torch.export, with its example inputs."""
    from assay.frontends.torch import archive

    return archive.read_program(path, samples=True)


def _exported(subject: BenchModel, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The model as a program that can be read without the library that the model comes from."""
    from assay.zoo.torch.workloads import Plain

    torch = importlib.import_module("torch")
    return (
        read_program(subject.file) if subject.file else torch.export.export(Plain(module), args, kwargs, strict=False)
    )


def _exact(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Array]:
    """The outputs in f64. Changes the module."""
    torch = importlib.import_module("torch")
    from assay.frontends.torch.private.ops import pytree

    def wide(leaf: Any) -> Any:
        return leaf.double() if torch.is_tensor(leaf) and leaf.is_floating_point() else leaf

    args, kwargs = pytree.tree_map(wide, (args, kwargs))
    return [widen(each) for each in arrays(module.double()(*args, **kwargs))]


def arrays(nested: Any) -> list[Array]:
    """The tensors among the leaves of something nested, as arrays."""
    torch = importlib.import_module("torch")
    from assay.frontends.torch.private.ops import pytree
    from assay.frontends.torch.types import to_array

    return [to_array(leaf.detach()) for leaf in pytree.tree_leaves(nested) if torch.is_tensor(leaf)]


def _save(folder: Path, inputs: Sequence[Array]) -> None:
    named: dict[str, Any] = {str(index): each for index, each in enumerate(inputs)}
    np.savez(folder / "inputs.npz", **named)
