"""The dimension algebra: nothing it claims may be wrong, and what it prints it reads back exactly.

Random expressions are trees. A tree is evaluated directly with Python's integers and, for comparison, through the
canonical form that the algebra makes of it.
"""

from __future__ import annotations

import copy
import itertools
import operator
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from assay.ir import dims
from assay.ir.dims import (
    UNKNOWN,
    Dim,
    Expr,
    bounds,
    ceildiv,
    dim_max,
    dim_min,
    eq,
    evaluate,
    floordiv,
    join,
    le,
    lt,
    mod,
    parse_dim,
    product,
    substitute,
    symbol,
    symbols,
)

# ---- trees: an int, a symbol's name, or (operator, tree, ...)

RANGES: dict[str, tuple[int, int | None]] = {
    "n": (0, None),
    "b": (1, 512),
    "c": (-5, 7),
    "k": (3, 3),
    "a `b`/c": (0, 3),
    "min": (-9, None),
}
SYMBOLS: dict[str, Dim] = {name: symbol(name, lo, hi) for name, (lo, hi) in RANGES.items()}
SAMPLES = {"n": (0, 1, 2, 9), "b": (1, 5, 512), "c": (-5, 0, 7), "k": (3,), "a `b`/c": (0, 3), "min": (-9, 4)}
BINDINGS = [dict(zip(SAMPLES, values, strict=True)) for values in itertools.product(*SAMPLES.values())]


def _floordiv(a: Any, b: Any) -> Any:
    return a // b


def _int_ceildiv(a: int, b: int) -> int:
    return -(-a // b)


SHARED: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": _floordiv,
    "%": operator.mod,
    "neg": operator.neg,
}
INT_OPS = SHARED | {"min": min, "max": max, "ceildiv": _int_ceildiv}
DIM_OPS = SHARED | {"min": dim_min, "max": dim_max, "ceildiv": ceildiv}


def run(tree: Any, leaves: Mapping[str, Any], ops: Mapping[str, Callable[..., Any]]) -> Any:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return leaves[tree]
    return ops[tree[0]](*(run(arg, leaves, ops) for arg in tree[1:]))


def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "//", "//", "%", "%", "ceildiv", "min", "max"]), inner, inner),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner, inner),
        st.tuples(st.just("neg"), inner),
    )


NAMES, NUMBERS = st.sampled_from(sorted(RANGES)), st.integers(-6, 12) | st.sampled_from([24, 64, 512])
MULTIPLES = st.tuples(st.just("*"), NUMBERS, NAMES)
SUMS = st.tuples(st.just("+"), MULTIPLES, NUMBERS | MULTIPLES)
TREES = st.recursive(NAMES | NUMBERS | SUMS, grow, max_leaves=8)


def build(tree: Any) -> Dim:
    """The canonical form; a tree that divides an int by 0 is rejected."""
    try:
        return run(tree, SYMBOLS, DIM_OPS)
    except ZeroDivisionError:
        assume(False)
        raise


def values(*trees: Any) -> Iterator[tuple[dict[str, int], list[int]]]:
    """Bindings under which no tree divides by 0, each with the trees' values."""
    for binding in BINDINGS:
        try:
            yield binding, [run(tree, binding, INT_OPS) for tree in trees]
        except ZeroDivisionError:
            continue


def inside(value: int, interval: tuple[int | None, int | None]) -> bool:
    lo, hi = interval
    return (lo is None or lo <= value) and (hi is None or value <= hi)


# ---- soundness


@settings(deadline=None, max_examples=300)
@given(TREES)
def test_a_canonical_form_has_the_value_of_its_tree_within_its_bounds(tree: Any) -> None:
    d = build(tree)
    interval = bounds(d)
    for binding, (value,) in values(tree):
        if d is not UNKNOWN:
            assert evaluate(d, binding) == value
        assert inside(value, interval)


@settings(deadline=None, max_examples=300)
@given(TREES, TREES)
@example("n", ("+", "n", 1))
@example("k", 3)
def test_no_comparison_is_ever_wrong(left: Any, right: Any) -> None:
    a, b = build(left), build(right)
    claims = [(eq(a, b), operator.eq), (le(a, b), operator.le), (lt(a, b), operator.lt)]
    for _, (x, y) in values(left, right):
        for claim, compare in claims:
            assert claim in (None, compare(x, y))


@settings(deadline=None, max_examples=200)
@given(TREES, st.dictionaries(st.sampled_from(sorted(RANGES)), TREES))
def test_substitution_commutes_with_evaluation(tree: Any, replacements: dict[str, Any]) -> None:
    d = substitute(build(tree), {name: build(other) for name, other in replacements.items()})
    for binding, news in values(*replacements.values()):
        moved = binding | dict(zip(replacements, news, strict=True))
        if d is UNKNOWN or not all(inside(moved[name], RANGES[name]) for name in RANGES):
            continue
        try:
            expected = run(tree, moved, INT_OPS)
        except ZeroDivisionError:
            continue
        assert evaluate(d, binding) == expected


@settings(deadline=None, max_examples=200)
@given(TREES, st.sampled_from(BINDINGS))
def test_substituting_every_symbol_evaluates(tree: Any, binding: dict[str, int]) -> None:
    d = build(tree)
    value = evaluate(d, binding)
    assert substitute(d, binding) == (UNKNOWN if value is None else value)
    assert symbols(d) <= RANGES.keys()


# ---- canonical forms


@settings(deadline=None, max_examples=300)
@given(TREES)
def test_a_canonical_form_is_read_back_exactly(tree: Any) -> None:
    d = build(tree)
    again = parse_dim(str(d))
    assert again == d
    assert str(again) == str(d)
    assert hash(again) == hash(d)
    assert bounds(again) == bounds(d)
    assert isinstance(d, int) or d is UNKNOWN or symbols(d)


@settings(deadline=None, max_examples=200)
@given(TREES, TREES, TREES)
def test_equal_sums_and_products_have_equal_structure(x: Any, y: Any, z: Any) -> None:
    a, b, c = build(x), build(y), build(z)
    forms: list[tuple[Dim, Dim]] = [
        (a + b, b + a),
        (a * b, b * a),
        ((a + b) + c, a + (b + c)),
        ((a * b) * c, a * (b * c)),
        ((a + b) * c, a * c + b * c),
        (a - b, -(b - a)),
        (a - b + b, a),
        (dim_min(a, b), dim_min(b, a)),
        (dim_max(a, b), dim_max(b, a)),
        (dim_min(a, a), a),
    ]
    for left, right in forms:
        if left is not UNKNOWN and right is not UNKNOWN:  # a limit may be met on one side only
            assert left == right
            assert hash(left) == hash(right)
            assert eq(left, right) is True


n, m, s, batch = symbol("n"), symbol("m"), symbol("s"), symbol("batch")
small, positive, signed = symbol("small", 0, 3), symbol("p", 1, 512), symbol("signed", -4, 7)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (2 * batch + s // 4 - 1, "2*batch + s//4 - 1"),
        (n - n, "0"),
        ((n + 1) * (n - 1), "n*n - 1"),
        (-n, "-n"),
        (-(n // 4), "-(n//4)"),
        (m - n // 4, "m - n//4"),
        (3 * m * (n % 4), "3*m*(n%4)"),
        (dim_min(n, n + 1), "n"),
        (dim_max(s, 0), "s"),
        (dim_max(s - 1, 0), "max(0, s - 1)"),
        (dim_min(m, n, 5, 9, m + 1), "min(5, m, n)"),
        (dim_min(m, dim_min(n, s)), "min(m, n, s)"),
        (dim_max(small, 3), "3"),
        (dim_min(n, m) // 4, "min(m, n)//4"),
        (n % 1, "0"),
        (n // 1, "n"),
        (4 * n // 4, "n"),
        (4 * n % 4, "0"),
        ((4 * n + 3) // 4, "n"),
        ((4 * n + 3) % 4, "3"),
        ((4 * n + 4) // 4, "n + 1"),
        (5 * n // 4, "n + n//4"),
        (6 * n // 4, "n + n//2"),
        ((2 * n + 1) // 4, "n//2"),
        ((2 * n + 1) % 4, "2*(n%2) + 1"),
        ((n + 9) // 4, "(n + 1)//4 + 2"),
        ((n + 9) % 4, "(n + 1)%4"),
        (n * m // n, "m"),
        (n * m % n, "0"),
        (n // n, "1"),
        (n * m * 6 // (n * s * 4), "(3*m)//(2*s)"),
        ((n + 1) * m // (n + 1), "m"),
        ((n + 1) * (m + s) % (m + s), "0"),
        ((n * n - 1) // (n - 1), "n + 1"),
        (n // (n + 1), "0"),
        (0 // n, "0"),
        (small % 4, "small[0..3]"),
        (small // 4, "0"),
        ((small + 4) // 4, "1"),
        ((3 - small) % 4, "-small[0..3] + 3"),
        (n // 3 // 5, "n//15"),
        ((n // 3 + 2) // 5, "(n + 6)//15"),
        (n // -4, "-((n + 3)//4)"),
        (n % -4, "-((3*n)%4)"),
        (ceildiv(n, 4), "(n + 3)//4"),
        (ceildiv(ceildiv(n, 2), 2), "(n + 3)//4"),
        (ceildiv(4 * n, 4), "n"),
        (7 // n, "7//n"),
        ((n - 1) // (m - 1), "(n - 1)//(m - 1)"),
        (n // (m - s), "n//(m - s)"),
        ((m - 5 * n) // 4, "(m - n)//4 - n"),
        ((m + n) // (m + s), "(m + n)//(m + s)"),
        ((2 * n + 1) % (2 * m), "(2*n + 1)%(2*m)"),
        ((2 * n) // (2 * m + 1), "(2*n)//(2*m + 1)"),
        (n // (s - m), "(-n)//(m - s)"),
        (positive + symbol("x", 2), "p[1..512] + x[2..]"),
        (symbol("a-b") * symbol("max"), "`a-b`*`max`"),
        (symbol("`", -3, -1), "````[-3..-1]"),
        (UNKNOWN, "?"),
    ],
)
def test_simplification(made: Dim, text: str) -> None:
    assert made == parse_dim(text)
    assert isinstance(made, int) or str(made) == text
    assert parse_dim(str(made)) == made


def test_a_constant_is_an_int() -> None:
    for d in (
        n - n,
        n - n + 3,
        0 * n,
        (n + 1) - n,
        product([2, 3, n - n + 4]),
        dim_min(2, 3),
        floordiv(7, 2),
        mod(7, 2),
    ):
        assert type(d) is int
    assert type(n + np.int64(1) - n) is int
    assert type(dim_max(*np.array([2, 3]))) is int
    assert product([]) == 1
    assert product([n, 2, m]) == 2 * m * n


def test_a_range_belongs_to_the_identity_of_a_symbol() -> None:
    assert symbol("n") == symbol("n", 0)
    assert symbol("n") != symbol("n", 1)
    assert eq(symbol("n"), symbol("n", 1)) is None
    assert bounds(positive * 2 - 1) == (1, 1023)
    assert bounds(n) == (0, None)
    assert bounds(-n) == (None, 0)
    assert bounds(signed * positive) == (-2048, 3584)
    assert bounds(signed * n) == (None, None)
    for name, lo, hi in (("", 0, None), ("n", 2, 1), ("n", 0, 1 << 200)):
        with pytest.raises(ValueError, match="symbol"):
            symbol(name, lo, hi)


def test_comparisons_are_decided_where_the_ranges_allow() -> None:
    assert eq(n + m, m + n) is True
    assert eq(n, n + 1) is False
    assert eq(n, m) is None
    assert eq(symbol("k", 3, 3), 3) is True
    assert lt(small, 4) is True
    assert lt(small, 3) is None
    assert lt(n, 0) is False
    assert le(0, n * m) is True
    assert le(n + 1, n) is False
    assert le(dim_min(n, 5), 5) is True
    assert lt(n % 8, 8) is True
    assert (eq(2, 2), le(3, 2), lt(1, 2)) == (True, False, True)


# ---- UNKNOWN, zero divisors, partial bindings


def test_unknown_absorbs_arithmetic_and_is_provably_equal_to_nothing() -> None:
    u = UNKNOWN
    made = [u + 1, 1 - u, u - u, u * n, n * u, -u, u // 2, 2 // u, u % 2, 2 % u, 0 // u, dim_min(u, 1), dim_max(n, u)]
    assert all(d is UNKNOWN for d in [*made, ceildiv(u, 2), product([n, u]), join(u, u), join(n, m), join(1, 2)])
    assert [type(d) for d in (0 * u, u * 0, product([u, 0]))] == [int] * 3
    assert u == UNKNOWN
    assert [eq(u, u), le(u, u), lt(u, u), eq(u, 1), le(n, u)] == [None] * 5
    assert bounds(u) == (None, None)
    assert join(n + 1, 1 + n) == n + 1
    assert join(3, 3) == 3


def test_zero_divisors() -> None:
    assert n // 0 is UNKNOWN
    assert n % 0 is UNKNOWN
    assert ceildiv(n, 0) is UNKNOWN
    assert n // (m - m) is UNKNOWN
    for divide in (floordiv, mod, ceildiv):
        with pytest.raises(ZeroDivisionError):
            divide(3, 0)
    assert substitute(n // m, {"m": 0}) is UNKNOWN
    assert substitute(n % m, {"n": 5, "m": 0}) is UNKNOWN
    assert evaluate(n * dim_min(s // m, 3), {"n": 0, "m": 0, "s": 2}) is None


def test_evaluation_needs_every_symbol_in_its_range() -> None:
    assert evaluate(2 * n + m // 3, {"n": 4, "m": 7, "other": 1}) == 10
    assert evaluate(n * m, {"n": 0}) is None
    assert evaluate(UNKNOWN, {}) is None
    assert evaluate(7, {}) == 7
    assert evaluate(small + 0, {"small": 4}) is None
    assert evaluate(n, {"n": -1}) is None
    assert evaluate(symbol("x", -3, -1), {"x": 0}) is None
    big = evaluate(n * n * n, {"n": np.int64(1 << 40)})  # pyright: ignore[reportArgumentType]
    assert big == 1 << 120
    assert type(big) is int


def test_substitution_is_simultaneous_and_may_refine_a_range() -> None:
    assert substitute(n - 2 * m, {"n": m, "m": n}) == m - 2 * n
    assert substitute(dim_max(n, 1) + m, {"n": symbol("n", 1)}) == symbol("n", 1) + m
    assert substitute(small, {"small": n + 4}) is UNKNOWN
    assert substitute(n * m, {"n": 3}) == 3 * m
    assert substitute(5, {"n": 3}) == 5
    assert symbols(dim_min(n, m // s) + 2) == {"n", "m", "s"}
    assert symbols(4) == frozenset()


# ---- limits


def test_what_grows_too_large_is_unknown_and_all_else_is_read_back() -> None:
    many = [symbol(f"x{i}") for i in range(65)]
    total: Dim = 0
    for x in many[:64]:
        total = total + x
    assert parse_dim(str(total)) == total
    assert total + many[64] is UNKNOWN
    assert total * total is UNKNOWN
    assert isinstance(widest := dim_max(*many[:64]), Expr)
    assert parse_dim(str(widest)) == widest != UNKNOWN
    assert dim_max(*many) is UNKNOWN
    assert n * (1 << 128) is UNKNOWN
    assert n // (1 << 128) is UNKNOWN
    assert dim_min(n, 10**5000) is UNKNOWN
    assert symbol("x" * 10_000) is UNKNOWN


def test_doubling_expressions_end_as_unknown() -> None:
    steps: list[Callable[[Dim, Dim], Dim]] = [
        lambda d, x: d * d,
        lambda d, x: -(d // x),
        lambda d, x: 5 - 2 * (d % x),
        lambda d, x: dim_min(d + x, d * 2 - x) + 1,
        lambda d, x: (d + x) // (d - x - 3),
    ]
    for step in steps:
        d: Dim = n
        for i in range(100):
            assert parse_dim(str(d)) == d
            d = step(d, symbol(f"x{i}"))
        assert d is UNKNOWN


REFUSED = """
n +|+ n|n m|2 3|n)|(n|()|(n, m)|min()|min(n|min(n,)|n[1.5]|n[3..1]|n[..3]|n[1..2|`n|``|n ** 2|n / 2|5//0|5%0|é|a-|n,m|?n
"""
LONG = [
    "9" * 5000,
    "(" * 65 + "n" + ")" * 65,
    "-" * 100 + "n",
    "n" * 70_000,
    "(" * 60_000,
    "-" * 60_000,
    "min(" * 9_000,
]


@pytest.mark.parametrize("text", ["", " ", *REFUSED.strip().split("|"), *LONG])
def test_what_is_no_dimension_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="dimension"):
        parse_dim(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" ( n+2 ) *3", 3 * n + 6),
        ("-n//4", -n // 4),
        ("2*-n", -2 * n),
        ("n-m-s", n - m - s),
        ("12//5%2", 0),
        ("min(3)", 3),
        ("max(n,min(m,s))", dim_max(n, dim_min(m, s))),
        ("? + n", UNKNOWN),
        ("0*?", 0),
        ("n//0", UNKNOWN),
    ],
)
def test_other_texts_are_read_with_the_precedence_of_python(text: str, expected: Dim) -> None:
    assert parse_dim(text) == expected


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from("nm4210 +-*/%(),?`[].")) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        d = parse_dim(text)
    except ValueError:
        return
    assert parse_dim(str(d)) == d


@settings(deadline=None, max_examples=300)
@given(st.text(min_size=1, max_size=40), st.integers(-(10**20), 10**20), st.none() | st.integers(0, 10**20))
def test_any_name_and_range_is_read_back(name: str, lo: int, size: int | None) -> None:
    x = symbol(name, lo, None if size is None else lo + size)
    assert parse_dim(str(2 * x // n)) == 2 * x // n
    assert symbols(x) == {name}


# ---- as Python objects


def test_an_expression_has_no_truth_value_and_no_ordering() -> None:
    d: Any = n + 1
    misuses: list[Callable[[], object]] = [lambda: bool(d), lambda: d < 3, lambda: d >= n, lambda: sorted([d, n])]
    for misuse in misuses:
        with pytest.raises(TypeError, match="use"):
            misuse()
    for convert in (operator.index, int, float, lambda d: d + 2.5, lambda d: "x" * d):  # pyright: ignore
        with pytest.raises(TypeError):
            convert(d)
    assert n != 3
    assert n != "n"


def test_an_expression_is_immutable_and_survives_copying() -> None:
    d = dim_min(n // 3, m) * small - 1
    assert isinstance(d, Expr)
    with pytest.raises(AttributeError):
        d.terms = ()
    with pytest.raises(AttributeError):
        del d.terms
    for other in (copy.copy(d), copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert other == d
        assert hash(other) == hash(d)
    assert copy.deepcopy(UNKNOWN) is UNKNOWN
    assert pickle.loads(pickle.dumps(UNKNOWN)) is UNKNOWN


def test_a_pickle_is_equal_in_a_process_with_other_hashes() -> None:
    d = dim_min(n // 3, m) * small - 1
    code = "import pickle, sys; from assay.ir.dims import *; d = pickle.loads(sys.stdin.buffer.read())\n"
    code += "assert d in {parse_dim(str(d))}; print(d)"
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(d), env=env, capture_output=True)
        assert done.stdout.decode().strip() == str(d), done.stderr.decode()


def test_numpy_integers_and_object_arrays() -> None:
    two: Any = np.int64(2)
    pairs: list[tuple[Any, Dim]] = [
        (n + two, n + 2),
        (two + n, n + 2),
        (n - two, n - 2),
        (two - n, 2 - n),
        (two * n, 2 * n),
        (n // two, n // 2),
        (two // n, 2 // n),
        (n % two, n % 2),
        (two % n, 2 % n),
        (np.uint8(255) + n, n + 255),
        (np.array(2) * n, 2 * n),
        (floordiv(two, n), 2 // n),
        (dim_min(two, n), dim_min(2, n)),
        (symbol("n", two, two * 3), symbol("n", 2, 6)),
    ]
    for made, expected in pairs:
        assert made == expected
        assert type(made) is Expr
    assert type(join(two, 2)) is int
    assert join(two, n) is UNKNOWN
    assert bounds(symbol("n", two, np.int64(1 << 62)) * 8) == (16, 1 << 65)  # pyright: ignore[reportArgumentType]
    row: Any = np.array([n, m, 3], dtype=object)
    left: Any = n
    assert np.add(row, row).tolist() == [2 * n, 2 * m, 6]
    assert (row + n).tolist() == [2 * n, m + n, n + 3]
    assert (left + row).tolist() == (row + n).tolist()
    assert (left - row).tolist() == [0, n - m, n - 3]
    assert (row // 2 % m).tolist() == [n // 2 % m, m // 2 % m, 1 % m]
    assert (left * np.array([1, 2])).tolist() == [n, 2 * n]
    assert np.prod(row) == 3 * m * n
    assert (row == n).tolist() == [True, False, False]
    with pytest.raises(TypeError, match="use lt"):
        np.minimum(row, 4)


def test_the_limits_bound_every_canonical_text() -> None:
    factors = dims.MAX_SIZE
    assert factors * len("*()") + dims.MAX_SIZE + dims.MAX_TERMS * (len(str(dims.MAX_INT)) + 3) < dims.MAX_TEXT
    assert 3 * dims.MAX_DEPTH < dims.MAX_NESTING  # an operation adds two parentheses and a sign at most
