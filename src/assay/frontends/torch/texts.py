"""What a text in an exported program may be: a rule for every field of torch's schema that is one.

torch interprets some of them. It evaluates sizes as Python, looks ops up by attribute, writes names into code that
it runs, and imports what the nesting of arguments names.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import torch

from assay.frontends.torch.decompositions import decompositions
from assay.frontends.torch.expressions import plain_arithmetic
from assay.frontends.torch.importer import op_name
from assay.frontends.torch.private.ops import (
    OpOverload,
    has_kernel,
    is_composite,
    overload_name,
    schema_of,
    tree_context,
)
from assay.frontends.torch.private.serde import SIZE_FUNCTIONS
from assay.frontends.torch.registry import rule_for

TextRule: TypeAlias = Callable[[str], str]
"""Gives the text as torch may have it; NotPlain says what it is not."""


class NotPlain(ValueError):
    """A text that torch would have to interpret."""


def _any(text: str) -> str:
    """What torch keeps as a text, and writes into code only as a literal."""
    return text


def _matching(pattern: str, what: str) -> TextRule:
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if not compiled.fullmatch(text) or keyword.iskeyword(text):
            raise NotPlain(f"this is no {what}")
        return text

    return check


def _arithmetic(text: str) -> str:
    plain = plain_arithmetic(text)
    if plain is None:
        raise NotPlain("this is no arithmetic over sizes")
    return plain


_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", re.ASCII)
_BODIES = frozenset(
    f"torch.ops.higher_order.{name}"
    for name in ("cond", "map_impl", "scan", "while_loop", "wrap_with_autocast", "wrap_with_set_grad_enabled")
)
"""Ops that call nothing but the bodies that come with them."""


def _operator(text: str) -> str:
    if text in SIZE_FUNCTIONS or text in _BODIES:
        return text
    parts = _OPERATOR.fullmatch(text)
    found: Any = torch.ops
    for name in parts.groups() if parts else ():
        found = getattr(found, name, None)
    if not isinstance(found, OpOverload) or not has_kernel(found):
        raise NotPlain("this is no op of torch's registry")
    if _takes_texts(found) and not _is_taken_apart(found):
        raise NotPlain("this op has no lowering and takes texts, which may be names of files")
    return text


def _takes_texts(op: Any) -> bool:
    return any("str" in str(argument.real_type) for argument in schema_of(op).arguments)


def _is_taken_apart(op: Any) -> bool:
    """Whether Assay lowers an op, or torch does before Assay sees it."""
    inside = op.namespace == "aten" and is_composite(op)
    return inside or any(rule_for(op_name(each)) is not None or each in decompositions() for each in _forms(op))


def _forms(op: Any) -> list[Any]:
    """An op and, if it works in place, the one that makes a new result, which torch puts in its stead."""
    name, overload = op.overloadpacket.__name__, overload_name(op)
    packet = getattr(getattr(torch.ops, op.namespace), name.removesuffix("_"), None)
    return [op, *([getattr(packet, overload)] if hasattr(packet, overload) else [])]


def _nesting(text: str) -> str:
    """The text of a pytree of known types, whose contexts hold no more than lists of keys."""
    try:
        protocol, spec = json.loads(text)
    except (ValueError, TypeError):
        raise NotPlain("this is no tree") from None
    return json.dumps([protocol, _plain_tree(spec)])


def _plain_tree(spec: Any) -> dict[str, Any]:
    if not isinstance(spec, dict) or spec.keys() != {"type", "context", "children_spec"}:
        raise NotPlain("this is no tree")
    tree = cast("dict[str, Any]", spec)
    if tree["type"] is not None and not _is_plain_context(tree["type"], tree["context"]):
        raise NotPlain(f"a tree holds a {str(tree['type'])[:60]!r}")
    return {**tree, "children_spec": [_plain_tree(child) for child in tree["children_spec"]]}


def _is_plain_context(kind: Any, context: Any) -> bool:
    """Whether torch reads a context as JSON without objects in it, or as the name of a type that is registered."""
    read = tree_context(kind)
    if read is None or not isinstance(context, str):
        return False
    if read == "own":
        return kind == _NAMED_TUPLE
    try:
        return _has_no_objects(json.loads(context))
    except ValueError:
        return False


_NAMED_TUPLE = "collections.namedtuple"


def _has_no_objects(item: Any) -> bool:
    if isinstance(item, list):
        return all(map(_has_no_objects, cast("list[Any]", item)))
    return not isinstance(item, dict)


_identifier = _matching(r"[A-Za-z_]\w*", "name")
_identifier_or_none = _matching(r"([A-Za-z_]\w*)?", "name")
_path = _matching(r"([\w-]+(\.[\w-]+)*(@\d+)?)?", "path of a module")
_symbol = _matching(r"[suzif]+\d{1,6}", "symbol")
_known_rules = _matching(r"ATEN|TRAINING", "set of rules that is known")
_record_name = _matching(r"(weight|tensor)_\d+", "record of a tensor")
_no_object = _matching(r"(?!)", "tensor or number but an object, which would have to be unpickled")

TEXTS: Mapping[str, TextRule] = {
    "Device.type": _identifier,
    "SymExpr.expr_str": _arithmetic,
    "SymIntArgument.as_name": _identifier,
    "SymFloatArgument.as_name": _identifier,
    "SymBoolArgument.as_name": _identifier,
    "TensorArgument.name": _identifier,
    "TokenArgument.name": _identifier,
    "GraphArgument.name": _identifier,
    "CustomObjArgument.name": _no_object,
    "CustomObjArgument.class_fqn": _no_object,
    "Argument.as_string": _any,
    "Argument.as_strings": _any,
    "Argument.as_operator": _operator,
    "Argument.as_string_to_argument": _any,
    "NamedArgument.name": _identifier_or_none,
    "Node.target": _operator,
    "Node.name": _identifier,
    "Node.metadata": _any,
    "Node.metadata.value": _any,
    "Graph.tensor_values": _identifier,
    "Graph.sym_int_values": _identifier,
    "Graph.sym_bool_values": _identifier,
    "Graph.sym_float_values": _identifier,
    "Graph.custom_obj_values": _no_object,
    "ConstantValue.as_string": _any,
    "InputToConstantInputSpec.name": _identifier,
    "InputToParameterSpec.parameter_name": _path,
    "InputToBufferSpec.buffer_name": _path,
    "InputToTensorConstantSpec.tensor_constant_name": _path,
    "InputToCustomObjSpec.custom_obj_name": _no_object,
    "BufferMutationSpec.buffer_name": _path,
    "ParameterMutationSpec.parameter_name": _path,
    "GradientToParameterSpec.parameter_name": _path,
    "GradientToUserInputSpec.user_input_name": _identifier,
    "UserInputMutationSpec.user_input_name": _identifier,
    "ModuleCallSignature.in_spec": _nesting,
    "ModuleCallSignature.out_spec": _nesting,
    "ModuleCallSignature.forward_arg_names": _identifier,
    "ModuleCallEntry.fqn": _path,
    "NamedTupleDef.field_names": _identifier,
    "GraphModule.treespec_namedtuple_fields": _path,
    "ExportedProgram.opset_version": _identifier,
    "ExportedProgram.range_constraints": _symbol,
    "ExportedProgram.verifiers": _known_rules,
    "ExportedProgram.torch_version": _any,
    "PayloadMeta.path_name": _record_name,
    "PayloadConfig.config": _path,
}
"""The rule of every field that is a text, or has texts for keys."""

LEFT_OUT = frozenset({"GraphModule.metadata", "ExportedProgram.guards_code"})
"""Fields that are not read: notes, and guards, which are Python; sessions check what they are fed themselves."""

KEPT: Mapping[str, frozenset[str]] = {"Node.metadata": frozenset({"nn_module_stack", "stack_trace"})}
"""Which keys of a dictionary are read, where it is not all of them."""
