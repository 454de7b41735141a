"""`torch.compile(model, backend="assay")`: AOTAutograd hands over aten graphs, each becomes a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from assay.errors import BadFeed, LowerFailed, hint_for
from assay.frontends.torch import import_fx
from assay.frontends.torch.importer import Imported
from assay.frontends.torch.types import to_array, to_tensor
from assay.limits import DEFAULT
from assay.ops.lowering import lower
from assay.runtime.session import compile_program
from assay.runtime.targets import make_target


@dataclass(frozen=True, slots=True)
class Options:
    """How `torch.compile` uses Assay. With `strict`, an op without a lowering is an error, not an opaque node."""

    target: str = "reference"
    mode: str = "exact"
    strict: bool = False


def options_from(given: Mapping[str, Any]) -> Options:
    """Options out of `options={…}`; BadFeed names an unknown key and the close ones."""
    known = [each.name for each in fields(Options)]
    for key in given:
        if key not in known:
            raise BadFeed(f"the backend has no option '{key}'", hint=hint_for(key, known))
    return Options(**given)


def backend(module: fx.GraphModule, inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """The entry that dynamo calls with a graph; gives what runs in its place."""
    options = options_from(given.pop("options", None) or given)

    def compiler(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(compile_graph(graph, options))

    compiled = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        inference_compiler=compiler,
        decompositions=core_aten_decompositions(),
    )
    return compiled(module, inputs)


def compile_graph(module: fx.GraphModule, options: Options) -> Callable[..., Any]:
    """A function from torch's values to torch's values that runs an aten graph."""
    imported = import_fx(module)
    lowered = lower(imported.graph, imported.facts)
    if options.strict:
        _refuse_opaque(lowered)
    target = make_target(options.target, options.mode, DEFAULT)
    program = compile_program(lowered, target, options.mode, DEFAULT)

    def run(*arguments: Any) -> list[Any]:
        results = program.run([_given(argument) for argument in arguments])
        return _returned(imported, results)

    return run


def _refuse_opaque(graph: Any) -> None:
    for node in graph.walk():
        if node.op == "opaque":
            raise LowerFailed(node.attrs["reason"], where=str(node.origin), hint="compile without strict=True")


def _given(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return to_array(torch.tensor(argument))
    if argument.device.type != "cpu":
        raise BadFeed(f"a tensor is on '{argument.device}'", hint="move the model and its inputs to the CPU")
    return to_array(argument)


def _returned(imported: Imported, results: Sequence[Any]) -> list[Any]:
    """The FX graph's outputs: tensors, numbers where the graph returns sizes, constants as they are."""
    return [entry[1] if isinstance(entry, tuple) else to_tensor(results[entry]) for entry in imported.outputs]
