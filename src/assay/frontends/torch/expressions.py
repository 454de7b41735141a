"""Which texts are plain arithmetic over sizes: torch hands such texts to a parser that evaluates them as Python."""

from __future__ import annotations

import ast
import re

_LONGEST = 10_000
"""Characters; those of real programs have some hundreds."""
MOST_BITS = 4096
"""How large a number an expression may come to: a tower of powers would be computed for ever."""
_SYMBOL = re.compile(r"[suzif]+\d{1,6}", re.ASCII)
_SYMBOL_BITS = 8
"""What a symbol counts as; no number is computed of it, but it may stand in a power."""
_CONSTANTS = frozenset({"int_oo"})
_FUNCTIONS = frozenset(
    {
        *("Integer", "Add", "Mul", "Pow", "Min", "Max", "Mod", "PythonMod", "FloorDiv", "CleanDiv", "CeilDiv"),
        *("CeilToInt", "FloorToInt", "RoundToInt", "TruncToInt", "IntTrueDiv", "FloatTrueDiv", "ToFloat", "Where"),
        *("Abs", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not"),
    }
)
_BETWEEN = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr)
_ASSUMPTIONS = frozenset({"positive", "integer", "real", "nonnegative"})


def plain_arithmetic(text: str) -> str | None:
    """A text that is arithmetic over symbols and numbers that are not absurdly large, written anew; else None."""
    if len(text) > _LONGEST or not text.isascii():
        return None
    try:
        tree = ast.parse(text, mode="eval").body
        _bits(tree)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bits(node: ast.expr) -> int:
    """About how many bits the result may have; ValueError if this is no arithmetic or there are too many."""
    match node:
        case ast.Constant(value=bool()):
            found = 1
        case ast.Constant(value=int(number)):
            found = number.bit_length()
        case ast.Name(id=name) if name in _CONSTANTS or _SYMBOL.fullmatch(name):
            found = _SYMBOL_BITS
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=assumed):
            found = _symbol_bits(name, assumed)
        case ast.Call(func=ast.Name(id="Pow"), args=[base, exponent], keywords=[]):
            found = _power(base, exponent)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _FUNCTIONS:
            found = sum(map(_bits, parts))
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            found = _power(base, exponent)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _BETWEEN):
            found = _bits(left) + _bits(right)
        case ast.UnaryOp(operand=operand, op=ast.USub() | ast.UAdd() | ast.Invert()):
            found = _bits(operand)
        case ast.Compare(left=left, comparators=others):
            found = sum(map(_bits, (left, *others)))
        case _:
            raise ValueError(f"{type(node).__name__} is no arithmetic")
    if found > MOST_BITS:
        raise ValueError("this number is too large")
    return found


def _symbol_bits(name: str, assumed: list[ast.keyword]) -> int:
    plain = all(each.arg in _ASSUMPTIONS and isinstance(each.value, ast.Constant) for each in assumed)
    if not plain or not _SYMBOL.fullmatch(name):
        raise ValueError("this is no symbol")
    return _SYMBOL_BITS


def _power(base: ast.expr, exponent: ast.expr) -> int:
    return _bits(base) * max(abs(_number(exponent)), 1)


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand) | ast.Call(func=ast.Name(id="Integer"), args=[operand]):
            return _number(operand)
        case _:
            raise ValueError("an exponent that is no number")
