"""A canonical integer algebra for tensor dimensions.

A `Dim` is a plain `int` or an `Expr`: a sum of integer-coefficient monomials over atoms, where an atom is a symbol,
`a//b`, `a%b` (Python's floor semantics), `min(...)` or `max(...)`.  Every function here returns canonical forms, so
`==`, `hash` and `str` are structural, cheap and deterministic.

What the algebra claims, it claims for every binding of the symbols that respects their ranges and makes no divisor
zero: where a divisor is zero an expression has no value and nothing is said about it (so `n//n` is 1).  Whatever
exceeds a limit below becomes `UNKNOWN`, which is always a sound answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import gcd
from operator import add, index, mul, sub
from typing import NamedTuple, NoReturn, SupportsIndex, TypeAlias

MAX_TERMS = 64  # monomials in an expression, and arguments of min and max
MAX_DEPTH = 20  # operations nested in one another
MAX_SIZE = 2048  # characters of all the atoms of an expression
MAX_INT = 1 << 127  # magnitude of an integer inside an expression
MAX_TEXT = 1 << 14  # characters that parse_dim accepts; every canonical text has fewer
MAX_NESTING = 64  # nested parentheses that parse_dim accepts; every canonical text has fewer

Dim: TypeAlias = "int | Expr"
Interval: TypeAlias = tuple[int | None, int | None]  # None: unbounded


class Atom(NamedTuple):
    """An indivisible factor.  `text` comes first and differs between atoms, so it alone decides their order."""

    text: str
    op: str  # "symbol", "//", "%", "min" or "max"
    name: str  # of a symbol, else ""
    args: tuple[Dim, ...]  # of an operation, else ()
    range: Interval
    depth: int


Monomial: TypeAlias = tuple[Atom, ...]  # sorted, with repetition; () is that of the constant
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]  # sorted, so the constant comes first; no coefficient is 0


def _lift(op: Callable[[Expr, Dim], Dim]) -> Callable[[Expr, SupportsIndex | Expr], Dim]:
    """op as an operator's method, which declines what is not an integer (a numpy array, say)."""

    def method(self: Expr, other: SupportsIndex | Expr) -> Dim:
        try:
            dim = _dim(other)
        except TypeError:
            return NotImplemented
        return op(self, dim)

    return method


class Expr:
    """An immutable symbolic integer, never a constant.  Made by the functions of this module only.

    `==` and `hash` are structural.  It has no truth value and no ordering: use `eq`, `le` and `lt`.
    """

    __slots__ = ("_hash", "terms")
    terms: Terms
    _hash: int

    def __init__(self, terms: Terms) -> None:
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "_hash", hash(terms))

    def __setattr__(self, name: str, value: object = None) -> NoReturn:
        raise AttributeError("an Expr is immutable")

    __delattr__ = __setattr__

    def __reduce__(self) -> str | tuple[type[Expr], tuple[Terms]]:
        return (Expr, (self.terms,)) if self.terms else "UNKNOWN"  # without the hash, which holds in this process only

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expr):
            return self is other or (self._hash == other._hash and self.terms == other.terms)
        return NotImplemented

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the symbolic dimension {self} has no truth value: use eq, le or lt")

    def __lt__(self, other: object) -> NoReturn:
        raise TypeError(f"the symbolic dimension {self} has no ordering: use lt, le, dim_min or dim_max")

    __le__ = __gt__ = __ge__ = __lt__

    def __neg__(self) -> Expr:
        return Expr(tuple((mono, -coef) for mono, coef in self.terms)) if self.terms else self

    __add__ = __radd__ = _lift(lambda a, b: _add(a, b))
    __mul__ = __rmul__ = _lift(lambda a, b: _mul(a, b))
    __sub__ = _lift(lambda a, b: _add(a, -b))
    __rsub__ = _lift(lambda a, b: _add(-a, b))
    __floordiv__ = _lift(lambda a, b: floordiv(a, b))
    __rfloordiv__ = _lift(lambda a, b: floordiv(b, a))
    __mod__ = _lift(lambda a, b: mod(a, b))
    __rmod__ = _lift(lambda a, b: mod(b, a))

    def __str__(self) -> str:
        text = ""
        for mono, coef in self.terms[1:] + self.terms[:1] if _constant(self) else self.terms:
            factors = [atom.text for atom in mono]
            if abs(coef) != 1 or not mono:
                factors.insert(0, str(abs(coef)))
            if mono and (len(factors) > 1 or (coef < 0 and not text)):
                factors[-len(mono) :] = [f"({atom.text})" if atom.op in _INFIX else atom.text for atom in mono]
            sign = (" - " if coef < 0 else " + ") if text else ("-" if coef < 0 else "")
            text += sign + "*".join(factors)
        return text or "?"

    __repr__ = __str__


UNKNOWN = Expr(())  # "some integer": absorbs all arithmetic but `0 *`, and is provably equal to nothing


def symbol(name: str, lo: int = 0, hi: int | None = None) -> Expr:
    """The symbol `name`, an integer in lo..hi; the range is part of its identity.

    ValueError for an empty name, an empty range or an end beyond MAX_INT; UNKNOWN for a name beyond MAX_SIZE.
    """
    lo, hi = int(index(lo)), None if hi is None else int(index(hi))
    if not name or (hi is not None and hi < lo) or max(abs(lo), abs(hi or 0)) > MAX_INT:
        raise ValueError(f"a symbol needs a name and a range of 128-bit integers: {name[:80]!r}")
    text = name if re.fullmatch(_PLAIN, name) and name not in ("min", "max") else f"`{name.replace('`', '``')}`"
    if (lo, hi) != (0, None):
        text += f"[{lo}..{'' if hi is None else hi}]"
    return _wrap(Atom(text, "symbol", name, (), (lo, hi), 0))


def product(dims: Iterable[Dim]) -> Dim:
    """The product of all dims, 1 of none."""
    result: Dim = 1
    for d in dims:
        result = result * _dim(d)
    return result


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b.  ZeroDivisionError when b is 0 and a an int; UNKNOWN when b is 0 and a an Expr."""
    a, b = _dim(a), _dim(b)
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if a is UNKNOWN or b is UNKNOWN or b == 0:
        return UNKNOWN
    if a == 0:
        return 0
    if _lead(b)[1] < 0:
        return floordiv(-a, -b)
    if isinstance(b, int) and _lead(a)[1] < 0:  # -a rounded up
        return -floordiv(b - 1 - a, b)
    factor, top, bottom, _ = _cancel(a, b)
    if factor != 1:
        return floordiv(top, bottom)
    quotient, rest = _divide(a, b)
    if quotient != 0:
        return quotient + floordiv(rest, b)
    shift = _constant(a)
    inner = _lone(a - shift)
    if isinstance(b, int) and inner is not None and inner.op == "//" and isinstance(k := inner.args[1], int):
        return floordiv(inner.args[0] + k * shift, k * b)  # of (x//k + shift) // b; canonical, so k > 0
    (a_lo, a_hi), (b_lo, b_hi) = bounds(a), bounds(b)
    lo = hi = None
    if b_lo is not None and b_lo >= 0 and b_hi != 0:
        b_lo = max(b_lo, 1)
        if a_lo is not None:
            lo = a_lo // b_lo if a_lo < 0 else 0 if b_hi is None else a_lo // b_hi
        if a_hi is not None:
            hi = a_hi // b_lo if a_hi >= 0 else -1 if b_hi is None else a_hi // b_hi
    return lo if lo is not None and lo == hi else _apply("//", (a, b), (lo, hi))


def mod(a: Dim, b: Dim) -> Dim:
    """a % b, of the sign of b.  ZeroDivisionError when b is 0 and a an int; UNKNOWN when b is 0 and a an Expr."""
    a, b = _dim(a), _dim(b)
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    quotient = floordiv(a, b)
    if quotient is UNKNOWN:
        return UNKNOWN
    if isinstance(quotient, int):
        return a - quotient * b
    if _lead(b)[1] < 0:
        return -mod(-a, -b)
    factor, top, bottom, rest = _cancel(a, b)
    if factor != 1:
        return factor * mod(top, bottom) + rest
    residue = _build({mono: c % b for mono, c in _terms(a)}) if isinstance(b, int) else _divide(a, b)[1]
    if residue != a:
        return mod(residue, b)
    (a_lo, a_hi), (b_lo, b_hi) = bounds(a), bounds(b)
    if b_lo is None or b_lo < 0:
        return _apply("%", (a, b), (None, None))
    tops = [None if b_hi is None else max(b_hi - 1, 0), None if a_lo is None or a_lo < 0 else a_hi]
    return _apply("%", (a, b), (0, min((top for top in tops if top is not None), default=None)))


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a / b rounded up; zero divisors as in `floordiv`."""
    return -floordiv(-_dim(a), b)


def dim_min(*dims: Dim) -> Dim:
    """The least of one or more dims."""
    return _extreme("min", dims)


def dim_max(*dims: Dim) -> Dim:
    """The greatest of one or more dims."""
    return _extreme("max", dims)


def join(a: Dim, b: Dim) -> Dim:
    """a when both are structurally the same, else UNKNOWN."""
    a, b = _dim(a), _dim(b)
    return a if a == b else UNKNOWN


def bounds(d: Dim) -> Interval:
    """An interval that contains every value of d, not always the tightest."""
    d = _dim(d)
    if isinstance(d, int):
        return d, d
    if d is UNKNOWN:
        return None, None
    lo: int | None = 0
    hi: int | None = 0
    for mono, coef in d.terms:
        ends = mono[0].range if mono else (1, 1)
        for atom in mono[1:]:
            ends = _times(ends, atom.range)
        least, most = ends if coef > 0 else ends[::-1]
        lo = None if lo is None or least is None else lo + coef * least
        hi = None if hi is None or most is None else hi + coef * most
    return lo, hi


def eq(a: Dim, b: Dim) -> bool | None:
    """Whether a == b: True for every binding, False for none, or None when neither is proved."""
    lo, hi = bounds(_dim(a) - _dim(b))
    if lo == hi == 0:
        return True
    return False if (lo is not None and lo > 0) or (hi is not None and hi < 0) else None


def le(a: Dim, b: Dim) -> bool | None:
    """Whether a <= b: True for every binding, False for none, or None when neither is proved."""
    lo, hi = bounds(_dim(b) - _dim(a))
    if lo is not None and lo >= 0:
        return True
    return False if hi is not None and hi < 0 else None


def lt(a: Dim, b: Dim) -> bool | None:
    """Whether a < b: True for every binding, False for none, or None when neither is proved."""
    reverse = le(b, a)
    return None if reverse is None else not reverse


def symbols(d: Dim) -> frozenset[str]:
    """The names of the symbols that occur in d."""
    if isinstance(d, int):
        return frozenset()
    atoms = [atom for mono, _ in _terms(_dim(d)) for atom in mono]
    return frozenset(a.name for a in atoms if a.name).union(*(symbols(arg) for a in atoms for arg in a.args))


def symbol_name(d: Dim) -> str | None:
    """The name of the symbol that d is; None if it is anything else."""
    if isinstance(d, int):
        return None
    atom = _lone(_dim(d))
    return None if atom is None or atom.op != "symbol" else atom.name


def substitute(d: Dim, values: Mapping[str, Dim]) -> Dim:
    """d with the named symbols replaced, all at once; other symbols stay.

    The caller warrants that each value lies in the range of its symbol.  A value that provably does not, a value that
    is UNKNOWN, and a divisor that becomes 0 each make the result UNKNOWN.
    """
    d = _dim(d)
    result: Dim = 0 if d is not UNKNOWN else UNKNOWN
    for mono, term in _terms(d):
        for atom in mono:
            if atom.op == "symbol":
                factor = _dim(values.get(atom.name, _wrap(atom)))
                lo, hi = atom.range
                if (lo is not None and lt(factor, lo)) or (hi is not None and lt(hi, factor)):
                    return UNKNOWN
            elif atom.op in _INFIX:
                a, b = (substitute(arg, values) for arg in atom.args)
                factor = UNKNOWN if b == 0 else _MAKE[atom.op](a, b)
            else:
                factor = _extreme(atom.op, (substitute(arg, values) for arg in atom.args))
            if factor is UNKNOWN:
                return UNKNOWN
            term = term * factor
        result = result + term
    return result


def evaluate(d: Dim, values: Mapping[str, int]) -> int | None:
    """The value of d; None when a symbol is unbound or bound outside its range, a divisor is 0, or d is UNKNOWN."""
    value = substitute(d, values) if symbols(d) <= values.keys() else UNKNOWN
    return value if isinstance(value, int) else None


def parse_dim(text: str) -> Dim:
    """The dim that `text` denotes: the inverse of `str`, which also takes texts that are not canonical.

    Operators are those of Python.  `n[1..512]` is a symbol with its range, `?` is UNKNOWN.  A name that is not a plain
    identifier, or is `min` or `max`, stands in backticks, with those inside it doubled.  Else ValueError.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"a dimension of {len(text)} characters is too long")
    try:
        return _Parser(text).whole()
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{text[:80]!r} is no dimension: {error}") from None


class _Parser:
    """Takes the tokens of a text in order: a sum (level 0) of products (1) of factors (2)."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_TOKEN.finditer(text))[::-1]  # the next one last, the empty mark of the end first

    def whole(self) -> Dim:
        """What the whole text denotes."""
        result = self._sum(0, 0)
        if len(self._tokens) > 1:
            raise ValueError(f"misplaced {self._tokens[-1][0]!r}")
        return result

    def _take(self, *marks: str) -> str | None:
        return self._tokens.pop()["mark"] if self._tokens[-1]["mark"] in marks else None

    def _sum(self, level: int, depth: int) -> Dim:
        """A sum or product."""
        if level == 2:
            return self._factor(depth)
        result = self._sum(level + 1, depth)
        while mark := self._take(*(("+", "-"), ("*", "//", "%"))[level]):
            result = _MAKE[mark](result, self._sum(level + 1, depth))
        return result

    def _factor(self, depth: int) -> Dim:
        if depth > MAX_NESTING:
            raise ValueError("too deeply nested")
        if self._take("-"):
            return -self._factor(depth + 1)
        token = self._tokens.pop()
        if token["mark"] is not None:
            raise ValueError(f"misplaced {token['mark'] or 'end'!r}")
        if token["unknown"]:
            return UNKNOWN
        if token["int"]:
            return int(token["int"])
        if name := token["name"]:
            name = name[1:-1].replace("``", "`") if name[0] == "`" else name
            return symbol(name, int(token["lo"] or 0), int(token["hi"]) if token["hi"] else None)
        return self._enclosed(token["call"], depth)

    def _enclosed(self, call: str | None, depth: int) -> Dim:
        """What parentheses hold, up to and with the closing one; the arguments of `call` if there is one."""
        args = [self._sum(0, depth + 1)]
        while call and self._take(","):
            args.append(self._sum(0, depth + 1))
        if not self._take(")"):
            raise ValueError("missing operator or parenthesis")
        return _extreme(call, args) if call else args[0]


def _dim(x: SupportsIndex | Expr) -> Dim:
    return x if type(x) is int or isinstance(x, Expr) else int(index(x))


def _terms(d: Dim) -> Terms:
    return d.terms if isinstance(d, Expr) else (((), d),) if d else ()


def _constant(d: Dim) -> int:
    return next((coef for mono, coef in _terms(d)[:1] if not mono), 0)


def _lead(d: Dim) -> tuple[Monomial, int]:
    """The leading term of d, which is neither 0 nor UNKNOWN: the first of the highest degree."""
    return min(_terms(d), key=lambda term: (-len(term[0]), term[0]))


def _lone(d: Dim) -> Atom | None:
    """The atom that d is, if it is just one."""
    terms = _terms(d)
    return terms[0][0][0] if len(terms) == 1 and terms[0][1] == len(terms[0][0]) == 1 else None


def _build(coefs: Mapping[Monomial, int]) -> Dim:
    """The canonical sum of coefficients times monomials, UNKNOWN when it exceeds a limit."""
    terms = sorted([term for term in coefs.items() if term[1]])
    if not terms or (len(terms) == 1 and not terms[0][0]):
        return terms[0][1] if terms else 0
    size = 0
    for mono, coef in terms:
        if not -MAX_INT <= coef <= MAX_INT:
            return UNKNOWN
        for atom in mono:
            size += len(atom.text)
    return UNKNOWN if len(terms) > MAX_TERMS or size > MAX_SIZE else Expr(tuple(terms))


def _add(a: Dim, b: Dim) -> Dim:
    if a is UNKNOWN or b is UNKNOWN:
        return UNKNOWN
    coefs = dict(_terms(a))
    for mono, coef in _terms(b):
        coefs[mono] = coefs.get(mono, 0) + coef
    return _build(coefs)


def _mul(a: Dim, b: Dim) -> Dim:
    if (a is UNKNOWN and b != 0) or (b is UNKNOWN and a != 0):
        return UNKNOWN
    coefs: dict[Monomial, int] = {}
    for x, c in _terms(a):
        for y, d in _terms(b):
            mono = tuple(sorted(x + y)) if x and y else x or y
            coefs[mono] = coefs.get(mono, 0) + c * d
    return _build(coefs)


def _wrap(atom: Atom) -> Expr:
    return Expr((((atom,), 1),)) if len(atom.text) <= MAX_SIZE and atom.depth <= MAX_DEPTH else UNKNOWN


def _apply(op: str, args: tuple[Dim, ...], interval: Interval) -> Expr:
    """The operation as an atom: args are canonical, and nothing simplifies any more."""
    if any(isinstance(arg, int) and abs(arg) > MAX_INT for arg in args):
        return UNKNOWN
    if op in _INFIX:
        bare = [arg >= 0 if isinstance(arg, int) else (a := _lone(arg)) and a.op not in _INFIX for arg in args]
        text = op.join(str(arg) if ok else f"({arg})" for arg, ok in zip(args, bare, strict=True))
    else:
        text = f"{op}({', '.join(map(str, args))})"
    depth = 1 + max((atom.depth for arg in args for mono, _ in _terms(arg) for atom in mono), default=0)
    return _wrap(Atom(text, op, "", args, interval, depth))


def _extreme(op: str, dims: Iterable[Dim]) -> Dim:
    """min or max, with nested ones flattened and every argument dropped that another makes redundant."""
    flat: set[Dim] = set()
    for d in map(_dim, dims):
        atom = _lone(d)
        flat.update(atom.args if atom is not None and atom.op == op else (d,))
    if UNKNOWN in flat:
        return UNKNOWN
    numbers = [d for d in flat if isinstance(d, int)]
    if len(numbers) == len(flat):
        return min(numbers) if op == "min" else max(numbers)  # ValueError of none
    kept: list[Dim] = []
    for d in sorted(flat, key=lambda d: ("", d) if isinstance(d, int) else (str(d), 0)):
        if not any(le(k, d) if op == "min" else le(d, k) for k in kept):
            kept = [k for k in kept if not (le(d, k) if op == "min" else le(k, d))] + [d]
        if len(kept) > MAX_TERMS:
            return UNKNOWN
    if len(kept) == 1:
        return kept[0]
    los = [lo for lo, _ in map(bounds, kept) if lo is not None]
    his = [hi for _, hi in map(bounds, kept) if hi is not None]
    if op == "min":
        interval = min(los) if len(los) == len(kept) else None, min(his, default=None)
    else:
        interval = max(los, default=None), max(his) if len(his) == len(kept) else None
    return _apply(op, tuple(kept), interval)


def _without(mono: Monomial, factor: Monomial) -> Monomial | None:
    """mono / factor, None when that is not a monomial."""
    rest = list(mono)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _cancel(a: Dim, b: Dim) -> tuple[Dim, Dim, Dim, int]:
    """(g, x, y, r) with a == g*x + r, b == g*y and a//b == x//y, r being 0 unless b is an int: then 0 <= r < g."""
    terms = _terms(a) + _terms(b)
    number = gcd(*(coef for mono, coef in terms if mono or isinstance(b, Expr)), b if isinstance(b, int) else 0)
    common: Monomial = ()
    for atom in terms[0][0]:
        if all(_without(mono, (*common, atom)) is not None for mono, _ in terms):
            common = (*common, atom)
    x, y = (_build({_without(mono, common) or (): coef // number for mono, coef in _terms(d)}) for d in (a, b))
    return _build({common: number}), x, y, _constant(a) % number if isinstance(b, int) else 0


def _divide(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """(q, r) with a == q*b + r, by long division; when b is a sum, q is 0 unless r is a constant."""
    lead, scale = _lead(b)
    pending, quotient = dict(_terms(a)), dict[Monomial, int]()
    while pending and len(quotient) <= MAX_TERMS:
        mono = min(pending, key=lambda mono: (-len(mono), mono))
        coef, ratio = pending.pop(mono), _without(mono, lead)
        times = coef // scale if coef > 0 or not mono else -(-coef // scale)  # towards 0, but for the constant
        if ratio is not None and times:
            quotient[ratio] = times
            for other, c in _terms(b):
                if other != lead:
                    step = tuple(sorted(other + ratio))
                    pending[step] = pending.get(step, 0) - times * c
    q = _build(quotient)
    r = a - q * b
    return (q, r) if len(_terms(b)) == 1 or isinstance(r, int) else (0, a)


def _times(x: Interval, y: Interval) -> Interval:
    """The interval of products.  Each end is taken as (sign of infinity, value), which sorts as it should."""
    ends: list[tuple[int, int]] = []
    for p in ((-1, 0) if x[0] is None else (0, x[0]), (1, 0) if x[1] is None else (0, x[1])):
        for q in ((-1, 0) if y[0] is None else (0, y[0]), (1, 0) if y[1] is None else (0, y[1])):
            infinite = (p[0] or q[0]) and p != (0, 0) and q != (0, 0)
            ends.append((1 if (p > (0, 0)) == (q > (0, 0)) else -1, 0) if infinite else (0, p[1] * q[1]))
    lo, hi = min(ends), max(ends)
    return None if lo[0] else lo[1], None if hi[0] else hi[1]


_INFIX = ("//", "%")
_MAKE: dict[str, Callable[..., Dim]] = {"+": add, "-": sub, "*": mul, "//": floordiv, "%": mod}
_PLAIN = r"[A-Za-z_][A-Za-z0-9_.]*"
_RANGE = r"\[(?P<lo>-?[0-9]+)\.\.(?P<hi>-?[0-9]+)?\]"
_SYMBOL = rf"(?P<name>{_PLAIN}|`(?:[^`]|``)+`)(?:{_RANGE})?"
_TOKEN = re.compile(rf"(?P<int>[0-9]+)|(?P<call>min|max|)\(|{_SYMBOL}|(?P<unknown>\?)|(?P<mark>//|\S|\Z)")
