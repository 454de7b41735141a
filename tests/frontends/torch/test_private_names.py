"""Torch's private names: each exists, has a row that says what breaks without it, and is used in one place."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).parents[3] / "src" / "assay"
PACKAGE = SOURCE / "frontends" / "torch" / "private"
OPINFO = SOURCE / "evidence" / "opinfo" / "private.py"
WAIT = 60

# --- names: what breaks without each

NAMES = {
    "torch._C.DispatchKey": "ops whose gradients magnify rounding are not traced in f64",
    "torch._C._dynamo.eval_frame._FrameAction": "a code that was watched may keep running eagerly",
    "torch._C._dynamo.eval_frame._FrameExecStrategy": "a code that was watched may keep running eagerly",
    "torch._C._dynamo.eval_frame._debug_get_cache_entry_list": "a watched model leaves compiled code behind",
    "torch._C._dynamo.eval_frame._get_cache_entries_for_region": "a watched model leaves compiled code behind",
    "torch._C._dynamo.eval_frame.reset_code": "a watched model leaves compiled code behind",
    "torch._C._dynamo.eval_frame.set_code_exec_strategy": "a code that was watched may keep running eagerly",
    "torch._decomp": "the backend does not know what to take apart",
    "torch._decomp.decompositions": "resampling and LSTM layers cannot be kept whole",
    "torch._dynamo.backends.common.aot_autograd": "there is no backend: no aten graphs",
    "torch._dynamo.config": "a watched model reads and writes notes on sizes in files",
    "torch._dynamo.convert_frame": "compilations of several threads cannot be told apart",
    "torch._dynamo.convert_frame.compile_lock": "two threads that compile see each other's kernels",
    "torch._dynamo.exc.BackendCompilerFailed": "users see dynamo's error, not Assay's",
    "torch._dynamo.exc.TorchDynamoException": "`assay opinfo` takes dynamo's failures for Assay's",
    "torch._dynamo.exc.Unsupported": "`assay opinfo` takes dynamo's failures for Assay's",
    "torch._dynamo.exc.UserError": "explain is silent on functions that torch leaves to eager",
    "torch._dynamo.guards.DeletedGuardManagerWrapper": "a watched model leaves compiled code behind",
    "torch._dynamo.optimize": "explain and trace do not learn which guards failed",
    "torch._dynamo.pgo": "a watched model changes how often the user's models compile",
    "torch._dynamo.utils": "graph breaks and graphs are not counted",
    "torch._export.serde.schema": "files of torch.export cannot be read",
    "torch._export.serde.serialize": "files of torch.export cannot be read",
    "torch._export.serde.union": "files of torch.export cannot be read",
    "torch._functorch._aot_autograd.descriptors.InputMutationAOTOutput": "written parameters have idle gradients",
    "torch._functorch._aot_autograd.descriptors.TangentAOTInput": "written parameters have idle gradients",
    "torch._functorch.config": "checkpointed models that draw random numbers do not compile",
    "torch._guards.CompileContext": "explain cannot say which compilation a guard led to",
    "torch._guards.TracingContext": "frozen weights are not known, nor results from saved values",
    "torch._guards.detect_fake_mode": "checkpointed ops that draw random numbers are not imported",
    "torch._inductor.compile_fx": "`assay bench` compares with an inductor that is not at its best",
    "torch._inductor.config": "`assay bench` compares with an inductor that is not at its best",
    "torch._ops.HigherOrderOperator": "control flow is not imported",
    "torch._ops.OpOverload": "no aten op is imported",
    "torch._prims.rng_prims.run_and_save_rng_state": "checkpointed ops that draw random numbers are not imported",
    "torch._prims.rng_prims.run_with_rng_state": "checkpointed ops that draw random numbers are not imported",
    "torch._prims_common": "results of several operands lie otherwise than eager's",
    "torch._prims_common.suggest_memory_format": "norms of channels-last images lie otherwise than eager's",
    "torch._subclasses.fake_tensor.unset_fake_temporarily": "constants of aten graphs are not imported",
    "torch.testing._comparison.default_tolerances": "`assay opinfo` has no tolerances",
    "torch.testing._internal.common_device_type.precisionOverride": "`assay opinfo` has no tolerances",
    "torch.testing._internal.common_device_type.toleranceOverride": "`assay opinfo` has no tolerances",
    "torch.testing._internal.common_methods_invocations.op_db": "`assay opinfo` has no cases",
    "torch.testing._internal.opinfo.core.DecorateInfo": "`assay opinfo` has no tolerances",
    "torch.utils._python_dispatch.TorchDispatchMode": "fuzzing does not know the noise of a program",
    "torch.utils._python_dispatch.is_traceable_wrapper_subclass": "tensor subclasses are not refused by name",
    "torch.utils._pytree": "nested arguments and results are not taken apart",
}


def found(name: str) -> bool:
    module, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), last) or bool(importlib.import_module(name))
    except ImportError:
        return False


@pytest.mark.parametrize("name", NAMES)
def test_torch_has_the_name(name: str) -> None:
    if not found(name):
        pytest.fail(f"torch {torch.__version__} has no {name}: {NAMES[name]}")


def test_a_name_that_torch_lacks_is_not_found() -> None:
    assert not found("torch._guards.no_such_name")
    assert not found("torch._no_such_module.name")


def test_every_private_import_is_in_the_table() -> None:
    used = {name for path in (*PACKAGE.glob("*.py"), OPINFO) for _, name in private_imports(parsed(path))}
    assert used == set(NAMES)


# --- nobody else uses them

ELSEWHERE = {
    "_TABLE": "Assay's own registry of ops, which `assay sweep` gives a fault",
    "_default_anchorgen": "torchvision's, for a small RetinaNet",
}
GETTERS = {"getattr", "hasattr", "setattr", "attrgetter", "methodcaller"}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every dotted name that is imported, also by `import_module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((node.lineno, each) for each in texts(node))


def texts(call: ast.Call) -> Iterator[str]:
    yield from (each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str))


def is_of_torch(name: str) -> bool:
    return name.partition(".")[0] == "torch"


def private_imports(tree: ast.AST) -> list[tuple[int, str]]:
    return [(at, name) for at, name in imports(tree) if is_of_torch(name) and any(map(is_private, name.split(".")))]


def private_attributes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Private attributes of anything but one's own objects; the ops in `torch.ops` are called so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "super()") and not owner.startswith("torch.ops."):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in GETTERS:
            yield from ((node.lineno, each) for each in texts(node) if is_private(each))


def misuses(source: str) -> list[str]:
    """The private names of torch that a module uses; one that does not import torch has none of its objects."""
    tree = ast.parse(source)
    if not any(is_of_torch(name) for _, name in imports(tree)):
        return []
    used = [*private_imports(tree), *private_attributes(tree)]
    return [f"{line}: {name}" for line, name in sorted(used) if name not in ELSEWHERE]


def test_private_names_of_torch_are_used_in_one_place() -> None:
    paths = [path for path in SOURCE.rglob("*.py") if path.parent != PACKAGE and path != OPINFO]
    assert len(paths) > 100
    wrong = {str(path.relative_to(SOURCE)): misuses(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch._dynamo", ["1: torch._dynamo"]),
        ("from torch._guards import detect_fake_mode", ["1: torch._guards.detect_fake_mode"]),
        ("from torch.utils import _pytree as pytree", ["1: torch.utils._pytree"]),
        ("def f():\n    from torch import _dynamo", ["2: torch._dynamo"]),
        ("import importlib\nimportlib.import_module('torch._inductor.config')", ["2: torch._inductor.config"]),
        ("import torch\ntorch._C._get_mkldnn_enabled()", ["2: _C", "2: _get_mkldnn_enabled"]),
        ("import torch\ndef f(x): return x._version", ["2: _version"]),
        ("import torch\nf = attrgetter('_version')", ["2: _version"]),
        ("import torch\nschema = getattr(op, '_schema', None)", ["2: _schema"]),
        ("import torch\nop = torch.ops.aten._to_copy.default", []),
        ("import torch\nclass C:\n    def f(self): return self._own", []),
        ("import onnx\nonnx._private()", []),
    ],
)
def test_a_private_name_is_seen(source: str, names: list[str]) -> None:
    assert misuses(source) == names
