"""An exported program of torch → symbolic graph: weights become constants, dims keep their names and ranges."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch.export import ExportedProgram, default_decompositions
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec

from assay.errors import AssayError, BadFeed, ImportFailed
from assay.frontends.torch.decompositions import decompositions
from assay.frontends.torch.importer import Imported, import_fx, op_name
from assay.frontends.torch.private.ops import HigherOrderOperator, compiling, core_decompositions, pytree
from assay.frontends.torch.registry import rule_for
from assay.frontends.torch.types import to_array
from assay.ir import dtypes
from assay.ir.dims import Dim, substitute, symbol
from assay.ir.dtypes import Array, read_only
from assay.ir.facts import Fact
from assay.ir.graph import Graph, Node, Value
from assay.ir.types import TensorType

_WEIGHTS = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})
_MUTATIONS = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION})
_IMPLIED_LEAST = 2
"""torch traces dynamic sizes as 2 or more and does not hold callers to that."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of the arguments or results: the name of an input or output, or a constant where `name` is None."""

    name: str | None
    constant: Any = None
    number: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """How the arguments and results of the source are nested, and what each of their leaves is called."""

    in_spec: Any
    out_spec: Any
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]

    def feeds(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The inputs by name out of arguments as the source takes them; BadFeed if they are nested otherwise."""
        known = cast("list[str]", self.in_spec.child(1).context or [])
        ordered: dict[str, Any] = {key: kwargs[key] for key in (*known, *kwargs) if key in kwargs}
        flat, spec = pytree.tree_flatten((args, ordered))
        if spec != self.in_spec:
            raise BadFeed("the arguments are not nested as the program was exported", hint=f"it takes {self.in_spec}")
        for leaf, given in zip(self.inputs, flat, strict=True):
            if leaf.name is None and given != leaf.constant:
                raise BadFeed(f"{given!r} was given for an argument that is {leaf.constant!r} in the program")
        return {leaf.name: given for leaf, given in zip(self.inputs, flat, strict=True) if leaf.name is not None}

    def nested(self, outputs: Mapping[str, Any]) -> Any:
        """The results nested as the source returns them."""
        return pytree.tree_unflatten([_restored(leaf, outputs) for leaf in self.outputs], self.out_spec)


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported program as a symbolic graph.

    `state` holds the content of inputs that are no arguments: buffers that the program changes. The output
    `name` in `renewals` is the new content of the input `renewals[name]`.
    """

    graph: Graph
    facts: tuple[Fact, ...]
    state: Mapping[str, Array]
    renewals: Mapping[str, str]
    signature: Signature


def import_program(program: ExportedProgram, *, shared: bool = False) -> Exported:
    """The symbolic graph of `program`. Its weights are copied, so that nobody changes them later; `shared` ones are
    not, which is right for a program that nobody else has."""
    try:
        return _imported(program, shared)
    except AssayError:
        raise
    except Exception as error:
        raise ImportFailed(
            f"torch's program could not be read: {type(error).__name__}: {error}",
            hint="check that it runs in torch: program.module()(*arguments)",
        ) from error


def _imported(program: ExportedProgram, shared: bool) -> Exported:
    _check(program)
    with warnings.catch_warnings():  # torch copies its own tree specs in a way that it warns of
        warnings.simplefilter("ignore", FutureWarning)
        with compiling():  # torch changes kernels here, as the backend does
            whole: ExportedProgram = cast(Any, program).run_decompositions(_table())
    nodes = {node.name: node for node in whole.graph.nodes}
    for node in nodes.values():
        if isinstance(node.target, HigherOrderOperator) and rule_for(op_name(node.target)) is None:
            raise ImportFailed(f"'{node.target.name()}', an op with bodies, is not supported", where=node.name)
    for spec in whole.graph_signature.input_specs:
        if isinstance(spec.arg, ConstantArgument):
            whole.graph.erase_node(nodes[spec.arg.name])
    imported = import_fx(whole.graph_module, "torch")
    mutated = {spec.target for spec in whole.graph_signature.output_specs if spec.kind in _MUTATIONS}
    weights = {
        spec.arg.name: _content(program, spec, shared)
        for spec in whole.graph_signature.input_specs
        if spec.kind in _WEIGHTS and spec.target not in mutated
    }
    state = {
        spec.arg.name: _content(program, spec, shared)
        for spec in whole.graph_signature.input_specs
        if spec.kind in _WEIGHTS and spec.target in mutated
    }
    leaves, renewals = _outputs(whole, imported)
    signature = Signature(program.call_spec.in_spec, program.call_spec.out_spec, _inputs(whole), leaves)
    graph, facts = _with_weights(imported, weights)
    graph = _with_outputs(graph, imported, [*renewals, *(leaf.name for leaf in leaves)])
    graph, facts = _renamed(graph, facts, _symbols(program))
    return Exported(graph, facts, state, renewals, signature)


def _table() -> Any:
    """What is taken apart: torch's composite ops, and else what the backend takes apart."""
    table, wanted = cast(Any, default_decompositions()), decompositions()
    for op in core_decompositions():
        if op not in wanted:
            table.pop(op, None)
    table.update(wanted)
    return table


def _check(program: ExportedProgram) -> None:
    for spec in program.graph_signature.input_specs:
        if spec.kind not in _WEIGHTS and spec.kind is not InputKind.USER_INPUT:
            raise ImportFailed(f"the input '{spec.arg.name}' is a {spec.kind.name}", hint="only tensors are taken")
    for name, tensor in {**program.state_dict, **program.constants}.items():
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu":
            raise ImportFailed(
                f"'{name}' is on '{tensor.device}'", hint="move the model to the CPU and export it there"
            )


def _content(program: ExportedProgram, spec: InputSpec, shared: bool) -> Array:
    target = cast(str, spec.target)
    tensor = program.state_dict[target] if target in program.state_dict else program.constants[target]
    array = to_array(cast(torch.Tensor, tensor))
    return read_only(array if shared else array.copy())


# --- arguments and results


def _inputs(program: ExportedProgram) -> tuple[Leaf, ...]:
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    return tuple(
        Leaf(None, spec.arg.value) if isinstance(spec.arg, ConstantArgument) else Leaf(spec.arg.name) for spec in specs
    )


def _outputs(program: ExportedProgram, imported: Imported) -> tuple[tuple[Leaf, ...], dict[str, str]]:
    """The leaves of the results, and which input each of the outputs before them renews."""
    specs = program.graph_signature.output_specs
    inputs = {spec.target: spec.arg.name for spec in program.graph_signature.input_specs if spec.target is not None}
    count = sum(spec.kind in _MUTATIONS for spec in specs)
    names = _output_names(program.call_spec.out_spec)
    leaves = [
        Leaf(name if entry.output is not None or _is_number(entry.constant) else None, entry.constant, entry.number)
        for name, entry in zip(names, imported.returned[count:], strict=True)
    ]
    return tuple(leaves), {f"{_renewed(spec, inputs)}.new": _renewed(spec, inputs) for spec in specs[:count]}


def _renewed(spec: OutputSpec, inputs: Mapping[str, str]) -> str:
    """The name of the input whose new content an output is."""
    target = cast(str, spec.target)
    return target if spec.kind is OutputKind.USER_INPUT_MUTATION else inputs[target]


def _output_names(spec: Any) -> list[str]:
    """A name for each leaf of the results, by the keys and positions that lead to it."""
    leaves = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))[0]
    names: list[str] = []
    for path, _ in leaves:
        parts = [str(part) for part in _parts(path)]
        name = "_".join(parts if parts and not parts[0].isdecimal() else ["output", *parts])
        while name in names:
            name += "_"
        names.append(name)
    return names


def _parts(path: Sequence[Any]) -> Iterator[Any]:
    for key in path:
        yield getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _restored(leaf: Leaf, outputs: Mapping[str, Any]) -> Any:
    if leaf.name is None or _is_number(leaf.constant):
        return leaf.constant
    return outputs[leaf.name].item() if leaf.number else outputs[leaf.name]


# --- the graph


def _with_weights(imported: Imported, weights: Mapping[str, Array]) -> tuple[Graph, tuple[Fact, ...]]:
    """The graph with some of its inputs as constants."""
    graph = imported.graph
    rows = list(zip(graph.input_names, graph.inputs, imported.facts, strict=True))
    kept = [row for row in rows if row[0] not in weights]
    constants = {value: weights[name] for name, value, _ in rows if name in weights}
    changed = replace(
        graph,
        inputs=tuple(value for _, value, _ in kept),
        input_names=tuple(name for name, _, _ in kept),
        constants={**graph.constants, **constants},
    )
    return changed, tuple(fact for _, _, fact in kept)


def _with_outputs(graph: Graph, imported: Imported, names: Sequence[str | None]) -> Graph:
    """The graph with its outputs named, and numbers among them as constants."""
    fresh = 1 + max((value.id for value in _values(graph)), default=0)
    constants: dict[Value, Array] = {}
    outputs: list[Value] = []
    for name, entry in zip(names, imported.returned, strict=True):
        if entry.output is not None:
            outputs.append(imported.graph.outputs[entry.output])
        elif name is not None:
            array = read_only(np.asarray(entry.constant))
            outputs.append(Value(fresh + len(constants), TensorType(dtypes.of(array), ())))
            constants[outputs[-1]] = array
    named = tuple(name for name in names if name is not None)
    own = {name: value for name, value in zip(named, outputs, strict=True) if name not in graph.names}
    return replace(
        graph,
        outputs=tuple(outputs),
        output_names=named,
        names={**graph.names, **own},
        constants={**graph.constants, **constants},
    )


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    yield from graph.constants
    for node in graph.nodes:
        yield from node.outputs


# --- symbols


def _symbols(program: ExportedProgram) -> dict[str, Dim]:
    """What stands for each of torch's symbols: the name that the user gave to the dim, and its range."""
    given = _given_names(program)
    used = Counter(given.values())
    found: dict[str, Dim] = {}
    for theirs, ends in _ranges(program).items():
        if not theirs.is_Symbol:
            continue
        name = given.get(str(theirs), str(theirs))
        least, most = (int(end) if end.is_Integer else None for end in (ends.lower, ends.upper))
        least = 0 if least is None or least <= _IMPLIED_LEAST else least
        found[str(theirs)] = symbol(name if used[name] <= 1 else str(theirs), least, most)
    return found


def _ranges(program: ExportedProgram) -> dict[Any, Any]:
    return cast(Any, program).range_constraints


def _given_names(program: ExportedProgram) -> dict[str, str]:
    """The names of `torch.export.Dim`s by torch's symbols; a file that was saved has none."""
    for node in program.graph.find_nodes(op="placeholder"):
        environment = getattr(getattr(node.meta.get("val"), "fake_mode", None), "shape_env", None)
        if environment is None:
            continue
        named: dict[str, str] = environment.source_name_to_debug_name
        found = {
            str(theirs): named[source.name]
            for theirs, sources in environment.var_to_sources.items()
            for source in sources
            if named.get(source.name, "").isidentifier()
        }
        constrained = {str(theirs) for theirs in _ranges(program)}
        return {theirs: name for theirs, name in found.items() if theirs in constrained}
    return {}


def _renamed(graph: Graph, facts: Sequence[Fact], symbols: Mapping[str, Dim]) -> tuple[Graph, tuple[Fact, ...]]:
    """The graph with other dims for its symbols."""
    table = {value: Value(value.id, _renamed_type(value.type, symbols)) for value in _values(graph)}

    def node(old: Node) -> Node:
        inputs = tuple(None if value is None else table[value] for value in old.inputs)
        return replace(old, inputs=inputs, outputs=tuple(table[value] for value in old.outputs))

    changed = replace(
        graph,
        inputs=tuple(table[value] for value in graph.inputs),
        outputs=tuple(table[value] for value in graph.outputs),
        nodes=tuple(node(each) for each in graph.nodes),
        constants={table[value]: array for value, array in graph.constants.items()},
        names={name: table[value] for name, value in graph.names.items()},
    )
    return changed, tuple(Fact(_renamed_type(f.type, symbols), _renamed_content(f.value, symbols)) for f in facts)


def _renamed_type(kind: Any, symbols: Mapping[str, Dim]) -> Any:
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    return TensorType(kind.dtype, tuple(substitute(dim, symbols) for dim in kind.shape))


def _renamed_content(content: Array | None, symbols: Mapping[str, Dim]) -> Array | None:
    if content is None or content.dtype != object:
        return content
    result = np.empty(content.shape, dtype=object)
    for index, dim in np.ndenumerate(content):
        result[index] = substitute(dim, symbols)
    return result
