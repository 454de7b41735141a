"""The contestants of a benchmark: each reads a model, prepares it (what is timed as compiling), and runs it.

All are set to the same number of threads and to full f32, and else work as they come; inputs and outputs are shared
with them where they can do that. What differs from a default is said where it is set.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from assay.errors import NotFound, hint_for
from assay.evidence.bench.models import Material, arrays, read_program, torch_model
from assay.evidence.bench.records import SELF
from assay.evidence.engines import fallbacks
from assay.ir.dtypes import Array
from assay.needs import DISTRIBUTION
from assay.runtime.load import load
from assay.runtime.session import SessionOptions
from assay.runtime.targets import make_chain


class Contestant(Protocol):
    """A model in somebody's hands. Making one imports libraries; neither that nor reading the model is timed."""

    def read(self) -> None:
        """Read the model into memory, unless preparing it does that."""
        ...

    def prepare(self) -> None:
        """Do all that has to be done once before the model can run."""
        ...

    def run(self) -> Any:
        """One inference; the outputs in whatever form they come."""
        ...

    def outputs(self) -> list[Array]:
        """The outputs of an inference as arrays."""
        ...

    def placed(self) -> dict[str, int]:
        """How many nodes run on each target; empty for peers."""
        ...

    def left(self) -> dict[str, int]:
        """How many nodes with floats do not run on the target, by op and reason; empty for peers."""
        ...


class _Peer:
    def read(self) -> None:
        """Most read their file when they prepare it."""

    def placed(self) -> dict[str, int]:
        """Peers do not tell."""
        return {}

    def left(self) -> dict[str, int]:
        """Peers do not tell."""
        return {}


class Eager(_Peer):
    """torch as it is, without gradients."""

    def __init__(self, material: Material, threads: int, target: str) -> None:
        self._torch, self._subject = importlib.import_module("torch"), material.subject
        self._torch.set_num_threads(threads)
        self._torch.set_grad_enabled(False)
        self._module: Any = None
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}

    def read(self) -> None:
        """Build the module."""
        self._module, self._args, self._kwargs = torch_model(self._subject)

    def prepare(self) -> None:
        """There is nothing to do."""

    def run(self) -> Any:
        """One call."""
        return self._module(*self._args, **self._kwargs)

    def outputs(self) -> list[Array]:
        """All tensors of the result."""
        return arrays(self.run())


class Inductor(Eager):
    """torch.compile, with weights frozen into the compiled code; that happens at the first call."""

    def __init__(self, material: Material, threads: int, target: str) -> None:
        super().__init__(material, threads, target)
        from assay.frontends.torch.private.dynamo import freeze_inductor

        freeze_inductor()

    def prepare(self) -> None:
        """Compile, and make one call, since nothing is compiled before that."""
        self._module = self._torch.compile(self._module, dynamic=False)
        self.run()


class OnnxRuntimeContestant(_Peer):
    """onnxruntime on the ONNX file, all optimizations on, which is the default."""

    def __init__(self, material: Material, threads: int, target: str) -> None:
        self._library, self._file, self._inputs = (
            importlib.import_module("onnxruntime"),
            material.onnx,
            material.inputs(),
        )
        self._options: Any = self._library.SessionOptions()
        self._options.log_severity_level = 4
        self._options.intra_op_num_threads = threads
        self._session: Any = None
        self._feeds: dict[str, Array] = {}

    def prepare(self) -> None:
        """Create the session."""
        self._session = self._library.InferenceSession(self._file, self._options, providers=["CPUExecutionProvider"])
        self._feeds = _named([each.name for each in self._session.get_inputs()], self._inputs)

    def run(self) -> Any:
        """One call."""
        return self._session.run(None, self._feeds)

    def outputs(self) -> list[Array]:
        """The arrays that onnxruntime gives."""
        return self.run()


class OpenVino(_Peer):
    """OpenVINO on the ONNX file: one inference at a time (`LATENCY`), f32 where it would choose bf16."""

    def __init__(self, material: Material, threads: int, target: str) -> None:
        self._library, self._file, self._inputs = importlib.import_module("openvino"), material.onnx, material.inputs()
        self._settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self._request: Any = None
        self._feeds: dict[int, Array] = {}

    def prepare(self) -> None:
        """Read and compile the model."""
        core = self._library.Core()
        model = core.compile_model(core.read_model(self._file), "CPU", self._settings)
        self._request = model.create_infer_request()
        self._feeds = dict(enumerate(self._inputs))

    def run(self) -> Any:
        """One inference, whose outputs stay where they are."""
        return self._request.infer(self._feeds, share_inputs=True, share_outputs=True)

    def outputs(self) -> list[Array]:
        """Copies of the outputs."""
        return [each.copy() for each in self.run().values()]


class Assay:
    """A session on a target, from the exported program; where there is none, from the ONNX file."""

    def __init__(self, material: Material, threads: int, target: str) -> None:
        self._options, self._inputs = SessionOptions(target=target), material.inputs()
        self._program = material.program
        self._source: Any = material.onnx
        make_chain(target, self._options.mode, self._options.limits)
        importlib.import_module(f"assay.frontends.{'torch.exported' if material.program else 'onnx'}")
        self._session: Any = None
        self._feeds: dict[str, Array] = {}

    def read(self) -> None:
        """Read the program; a session reads an ONNX file itself."""
        if self._program is not None:
            self._source = read_program(self._program)

    def prepare(self) -> None:
        """Make the session, which is all that stays."""
        source, self._source = self._source, None
        self._session = load(source, self._options)
        self._feeds = _named(self._session.input_names, self._inputs)

    def run(self) -> Any:
        """One run."""
        return self._session.run(self._feeds)

    def outputs(self) -> list[Array]:
        """The outputs in the model's order."""
        return list(self.run().values())

    def placed(self) -> dict[str, int]:
        """How many nodes run on each target."""
        return dict(Counter(node.target for node in self._session.explain().nodes))

    def left(self) -> dict[str, int]:
        """How many nodes with floats are left to the oracle, by op and reason, most first."""
        return dict(Counter(fallbacks(self._session)).most_common())


def _named(names: Sequence[str], inputs: Sequence[Array]) -> dict[str, Array]:
    return dict(zip(names, inputs, strict=True))


class Entry:
    """Who a contestant is: the package that it is in, the forms of a model of which it needs one, how it is made."""

    def __init__(self, package: str, make: Callable[[Material, int, str], Contestant], *forms: str) -> None:
        self.package, self.make, self.forms = package, make, forms

    def version(self) -> str | None:
        """The version that is installed; None if it is not."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    def refusal(self, material: Material) -> str:
        """Why this contestant cannot take the model; empty if it can."""
        if self.version() is None:
            return f"{self.package} is not installed"
        return "" if any(material.has(form) for form in self.forms) else material.why(self.forms)


ENTRIES: Mapping[str, Entry] = {
    SELF: Entry(DISTRIBUTION, Assay, "program", "onnx"),
    "eager": Entry("torch", Eager, "module"),
    "inductor": Entry("torch", Inductor, "module"),
    "onnxruntime": Entry("onnxruntime", OnnxRuntimeContestant, "onnx"),
    "openvino": Entry("openvino", OpenVino, "onnx"),
}
PEERS = tuple(name for name in ENTRIES if name != SELF)


def check_peers(names: Sequence[str]) -> None:
    """NotFound for a name that no peer has."""
    for name in names:
        if name not in PEERS:
            raise NotFound(f"there is no peer '{name}'", hint=hint_for(name, PEERS))
