"""Sequences, optionals, strings and training ops, where the official suite is thin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

from assay.errors import AssayError, LimitExceeded, LowerFailed, RunFailed
from assay.evidence.compare.arrays import closeness
from assay.frontends.onnx import load
from assay.ops.definitions.regex import compile_pattern
from assay.ops.lowering import lower
from assay.targets.reference import ReferenceTarget

onnxruntime.set_default_logger_severity(4)
peer_errors: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
RNG = np.random.default_rng(3)
WAYS = [(False, "exact"), (True, "exact"), (False, "precise")]


def parsed(text: str, *, opset: int = 18, training: bool = False) -> onnx.ModelProto:
    """A model from its text, which begins with the graph's name."""
    domains = f'"" : {opset}' + (', "ai.onnx.preview.training" : 1' if training else "")
    return parser.parse_model(f"<ir_version: 9, opset_import: [{domains}]>\n{text}")


def ours(model: onnx.ModelProto, inputs: Sequence[Any], way: tuple[bool, Any] = (False, "exact")) -> tuple[Any, ...]:
    decomposed, mode = way
    return ReferenceTarget(mode).compile(lower(load(model), decomposed=decomposed)).run(list(inputs))


def theirs(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def same(actual: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(actual, list)
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
        return
    found = closeness(actual, expected, relative=1e-6, absolute=1e-6)
    assert found.ok, f"{found}\ngot {actual}\nnot {expected}"


def words(*items: str) -> Any:
    return np.array(items, dtype=object)


def f32(*shape: int) -> Any:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


# --- sequences against ONNX Runtime

A, B, C = f32(2, 3), f32(1, 3), f32(4, 3)
SEQUENCES: dict[str, tuple[str, dict[str, Any]]] = {
    "insert, erase, at": (
        """g (float[a, 3] x, float[b, 3] y, float[c, 3] z) => (float[d, 3] out, int64 n, float[e, 3] last) {
            first = SequenceConstruct(x, y)
            at = Constant <value = int64 {-2}> ()
            longer = SequenceInsert(first, z, at)
            shorter = SequenceErase(longer)
            n = SequenceLength(shorter)
            place = Constant <value = int64 {0}> ()
            out = SequenceAt(shorter, place)
            end = Constant <value = int64 {-1}> ()
            last = SequenceAt(longer, end)
        }""",
        {"x": A, "y": B, "z": C},
    ),
    "an erased place": (
        """g (float[a, 3] x, float[b, 3] y, int64 place) => (seq(float[?, 3]) out) {
            both = SequenceConstruct(x, y, x)
            out = SequenceErase(both, place)
        }""",
        {"x": A, "y": B, "place": np.asarray(-3)},
    ),
    "a sequence of the user's": (
        """g (seq(float) s, float[2] x) => (seq(float) out) {
            out = SequenceInsert(s, x)
        }""",
        {"s": [f32(1), f32(3, 1)], "x": f32(2)},
    ),
    "joined": (
        """g (float[a, 3] x, float[b, 3] y) => (float[c, 3] out) {
            both = SequenceConstruct(x, y)
            out = ConcatFromSequence <axis: int = 0> (both)
        }""",
        {"x": A, "y": B},
    ),
    "stacked": (
        """g (float[2, 3] x) => (float[2, 2, 3] out) {
            both = SequenceConstruct(x, x)
            out = ConcatFromSequence <axis: int = 1, new_axis: int = 1> (both)
        }""",
        {"x": A},
    ),
    "split by a number": (
        """g (float[n, 3] x, int64 size) => (seq(float[m, 3]) out) {
            out = SplitToSequence <axis: int = 0> (x, size)
        }""",
        {"x": f32(7, 3), "size": np.asarray(3)},
    ),
    "split by numbers": (
        """g (float[3, n] x, int64[2] sizes) => (seq(float[3, m]) out) {
            out = SplitToSequence <axis: int = -1, keepdims: int = 0> (x, sizes)
        }""",
        {"x": f32(3, 7), "sizes": np.array([5, 2])},
    ),
    "split into ones": (
        """g (float[2, n] x) => (seq(float[2]) out) {
            out = SplitToSequence <axis: int = 1, keepdims: int = 0> (x)
        }""",
        {"x": f32(2, 3)},
    ),
    "empty": (
        """g () => (int64 out) {
            none = SequenceEmpty <dtype: int = 7> ()
            out = SequenceLength(none)
        }""",
        {},
    ),
    "mapped": (
        """g (seq(float[?]) s, float[1] bias) => (seq(float[?]) doubled, seq(int64[1]) sizes) {
            doubled, sizes = SequenceMap <body = body (float[?] x, float[1] b) => (float[?] y, int64[1] n) {
                y = Add(x, b)
                n = Shape(x)
            }> (s, bias)
        }""",
        {"s": [f32(1), f32(3), f32(0)], "bias": f32(1)},
    ),
    "mapped, empty": (
        """g (seq(float[?]) s) => (seq(float[?]) out) {
            out = SequenceMap <body = body (float[?] x) => (float[?] y) { y = Neg(x) }> (s)
        }""",
        {"s": []},
    ),
    "grown in a loop": (
        """g (float[n, 2] x, int64 count) => (float[m, 2] out) {
            none = SequenceEmpty()
            go = Constant <value = bool {1}> ()
            grown = Loop <body = body (int64 i, bool c, seq(float) s) => (bool d, seq(float) t) {
                d = Identity(c)
                row = Gather <axis: int = 0> (x, i)
                t = SequenceInsert(s, row)
            }> (count, go, none)
            out = ConcatFromSequence <axis: int = 0, new_axis: int = 1> (grown)
        }""",
        {"x": f32(5, 2), "count": np.asarray(3)},
    ),
    "chosen by If": (
        """g (bool c, float[2] x) => (seq(float) out) {
            out = If (c) <then_branch = t () => (seq(float) a) {
                a = SequenceConstruct(x, x)
            }, else_branch = e () => (seq(float) b) { b = SequenceEmpty() }>
        }""",
        {"c": np.asarray(True), "x": f32(2)},
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_sequences(name: str, way: tuple[bool, Any]) -> None:
    text, feeds = SEQUENCES[name]
    model = parsed(text)
    for actual, expected in zip(ours(model, list(feeds.values()), way), theirs(model, feeds), strict=True):
        same(actual, expected)


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("g (seq(float) s, int64 at) => (float out) { out = SequenceAt(s, at) }", [[f32(1)], np.asarray(1)]),
        ("g (seq(float) s) => (seq(float) out) { out = SequenceErase(s) }", [[]]),
        ("g (seq(float) s, float x, int64 n) => (seq(float) y) { y = SequenceInsert(s, x, n) }", [[], A, np.array(1)]),
        ("g (seq(float[m]) s) => (float[n] out) { out = ConcatFromSequence <axis: int = 0> (s) }", [[]]),
        ("g (float[3] x, int64[2] by) => (seq(float[n]) y) { y = SplitToSequence(x, by) }", [f32(3), np.array([2, 2])]),
        ("g (float[3] x, int64 by) => (seq(float[n]) out) { out = SplitToSequence(x, by) }", [f32(3), np.asarray(0)]),
    ],
)  # fmt: skip
def test_sequences_say_what_does_not_fit(text: str, inputs: list[Any]) -> None:
    with pytest.raises(RunFailed):
        ours(parsed(text), inputs)


def test_a_sequence_takes_one_dtype() -> None:
    with pytest.raises(LowerFailed, match="meet"):
        ours(
            parsed("g (float x, int64 y) => (seq(float) out) { out = SequenceConstruct(x, y) }"), [f32(), np.asarray(1)]
        )


# --- optionals


def optional_model(kind: str) -> onnx.ModelProto:
    return parsed(
        f"""g (optional({kind}) x, bool c) => (bool has, {kind} out) {{
            has = OptionalHasElement(x)
            z = Constant <value = float[1] {{7.0}}> ()
            out = If (has) <then_branch = t () => ({kind} a) {{ a = OptionalGetElement(x) }},
                            else_branch = e () => ({kind} b) {{ b = Identity(z) }}>
        }}"""
    )


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_optionals_hold_a_value_or_none(way: tuple[bool, Any]) -> None:
    model = optional_model("float[n]")
    x = f32(3)
    has, out = ours(model, [x, np.asarray(True)], way)
    assert bool(has)
    same(out, x)
    has, out = ours(model, [None, np.asarray(True)], way)
    assert not bool(has)
    same(out, np.array([7.0], np.float32))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_optionals_are_made_of_values_and_of_types(way: tuple[bool, Any]) -> None:
    model = parsed(
        """g (bool c, float[2] x) => (optional(seq(float[2])) out, bool has) {
            out = If (c) <then_branch = t () => (optional(seq(float[2])) a) {
                s = SequenceConstruct(x)
                a = Optional(s)
            }, else_branch = e () => (optional(seq(float[2])) b) { b = Optional() }>
            has = OptionalHasElement(out)
        }"""
    )
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    branch = next(a.g for a in model.graph.node[0].attribute if a.name == "else_branch")
    branch.node[0].attribute.append(helper.make_attribute("type", kind))
    x = f32(2)
    same(ours(model, [np.asarray(True), x], way)[0], [x])
    out, has = ours(model, [np.asarray(False), x], way)
    assert out is None
    assert not has


def test_an_empty_optional_has_nothing_to_get() -> None:
    model = parsed("g (optional(float) x) => (float out) { out = OptionalGetElement(x) }")
    with pytest.raises(RunFailed, match="empty"):
        ours(model, [None])


# --- strings against ONNX Runtime


class Text(NamedTuple):
    op: str
    inputs: Sequence[Any]
    attrs: Mapping[str, Any] = {}
    outputs: int = 1


TEXTS = [
    Text("StringConcat", [words("a", "b").reshape(2, 1), words("x", "", "ü")]),
    Text("StringConcat", [words("a").reshape(()), words("x", "y")]),
    *(
        Text("StringSplit", [words("a,b,,c", ",", "no")], {"delimiter": ",", **more}, 2)
        for more in ({}, {"maxsplit": 1}, {"maxsplit": 0}, {"maxsplit": 9})
    ),
    *(Text("StringSplit", [words("  a  b c ", "x", "")], more, 2) for more in ({}, {"delimiter": "", "maxsplit": 1})),
    Text("StringSplit", [words("a::b", "::").reshape(1, 2)], {"delimiter": "::"}, 2),
    *(
        Text(
            "StringNormalizer",
            [x],
            {"case_change_action": case, "is_case_sensitive": sensitive, "stopwords": stops, "locale": "C.UTF-8"},
        )
        for x in (words("Monday", "tuesday", "MONDAY"), words("monday", "Tuesday").reshape(1, 2))
        for case in ("NONE", "LOWER", "UPPER")
        for sensitive in (0, 1)
        for stops in (["monday"], ["monday", "tuesday", "MONDAY", "Monday", "Tuesday"])
    ),
]


def text_model(case: Text) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(case.inputs))]
    codes = {"O": TensorProto.STRING, "i": TensorProto.INT64}
    infos = [
        helper.make_tensor_value_info(name, codes[x.dtype.kind], x.shape)
        for name, x in zip(names, case.inputs, strict=True)
    ]
    results = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, results, **case.attrs)
    graph = helper.make_graph([node], "text", infos, [onnx.ValueInfoProto(name=name) for name in results])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_strings(case: Text) -> None:
    model = text_model(case)
    expected = theirs(model, {f"x{i}": x for i, x in enumerate(case.inputs)})
    for actual, wanted in zip(ours(model, case.inputs), expected, strict=True):
        assert actual.dtype.kind == wanted.dtype.kind
        assert actual.tolist() == wanted.tolist()


# --- n-grams against ONNX Runtime

POOL = {"TF": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 4, 3, 5, 4], "counts": [0, 4, 10], "indexes": [0, 4, 2, 3, 1, 5, 6]}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (2, 2), (1, 3), (3, 3)])
@pytest.mark.parametrize("skips", [0, 1, 3])
@pytest.mark.parametrize("text", [False, True])
def test_ngrams(mode: str, lengths: tuple[int, int], skips: int, text: bool) -> None:
    pool = POOL["TF"][:13]
    x = RNG.integers(2, 9, (3, 12))
    attrs: dict[str, Any] = {
        "mode": mode,
        "min_gram_length": lengths[0],
        "max_gram_length": lengths[1],
        "max_skip_count": skips,
        "ngram_counts": POOL["counts"],
        "ngram_indexes": [0, 4, 2, 3, 1, 5, 6, 7],
        "weights": [0.5, 1.0, 2.0, 3.0, 0.25, 4.0, 8.0, 1.5],
    }
    if text:
        case = Text(
            "TfIdfVectorizer", [x.astype(str).astype(object)], {**attrs, "pool_strings": [str(i) for i in pool]}
        )
    else:
        case = Text("TfIdfVectorizer", [x], {**attrs, "pool_int64s": pool})
    for inputs in (case.inputs, [case.inputs[0][1]]):
        model = text_model(case._replace(inputs=inputs))
        same(ours(model, inputs)[0], theirs(model, {"x0": inputs[0]})[0])


# --- regular expressions

PATTERNS = [
    r"", r"a*", r"(a|b)+c?", r"[^ab]+", r"\d{2,3}", r"\d{2,}x", r"x{,2}", r"[[:alpha:]]+", r"[[:^alpha:]\d]+",
    r"\w+\s\w+", r"(?i)straße|ab", r"a(?i)b(?-i)c", r"(?:a|(?i:b))", r".+", r"(?s).+", r"^ab$", r"(?m)^a$\n^b$",
    r"\Aab\z", r"\bab\b", r"a\Bb", r"\Qa.b\E", r"\Qa.b", r"\x61\x{62}", r"\141b", r"\pL+", r"\p{Lu}\P{Lu}+",
    r"[\p{Nd}a-c]+", r"[]a]+", r"[a\-z]", r"[a-]+", r"(?P<n>a)b", r"(?<n>a)b", r"(?U)a+", r"a+?b*?", r"\.",
    r"[\d\s]+", r"a{0}b", r"(a{2}){2}", r"\t|\n", r"é+", r"(?i)[A-C]+", r"(?i)k", r"a||b", r"()",
]  # fmt: skip
SUBJECTS = [
    "", "a", "b", "ab", "aB", "AB", "ba", "aab", "abc", "aBc", "ac", "cc", "12", "123", "1234", "123x", "x", "xx",
    "x{,2}", "straße", "STRASSE", "a b", "a\nb", "ab\n", "a.b", "axb", "Ab", "É", "éé", "]", "-", "z", "aaaa",
    "\t", "é1", "K", "\u212a", "a1",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_what_re2_matches(pattern: str) -> None:
    case = Text("RegexFullMatch", [words(*SUBJECTS)], {"pattern": pattern})
    model = text_model(case)
    actual, expected = ours(model, case.inputs)[0], theirs(model, {"x0": case.inputs[0]})[0]
    assert dict(zip(SUBJECTS, actual.tolist(), strict=True)) == dict(zip(SUBJECTS, expected.tolist(), strict=True))


BAD_PATTERNS = [
    r"(", r")", r"[", r"a**", r"*a", r"\1", r"(?=a)", r"(?<=a)", r"(?!a)", r"\Z", r"[b-a]", r"a{2,1}", r"a{1001}",
    r"\8", r"[[:what:]]", r"\p{Nope}", r"(?z)", r"\x{110000}", r"((a{1000}){1000}){1000}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", BAD_PATTERNS, ids=lambda pattern: pattern[:20])
def test_patterns_that_re2_refuses_are_refused(pattern: str) -> None:
    model = text_model(Text("RegexFullMatch", [words("a")], {"pattern": pattern}))
    with pytest.raises(AssayError, match="pattern"):
        ours(model, [words("a")])
    with pytest.raises(peer_errors.Fail):
        theirs(model, {"x0": words("a")})


def test_groups_nest_only_so_deep() -> None:
    with pytest.raises(ValueError, match="nest deeper"):
        compile_pattern("(" * 2000 + ")" * 2000)


def test_no_pattern_takes_more_than_linear_time() -> None:
    assert not compile_pattern("(a+)+b").full_match("a" * 100_000)
    assert not compile_pattern("(a|a)*(a|aa)*c").full_match("a" * 100_000)


# --- training


def optimiser(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], outputs: int) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain="ai.onnx.preview.training", **attrs)
    graph = helper.make_graph([node], op, infos, [onnx.ValueInfoProto(name=name) for name in results])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.preview.training", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_adam_corrects_its_rate_after_the_first_step(count: int, way: tuple[bool, Any]) -> None:
    x, g, v, h = (np.abs(f32(2, 2)).astype(np.float64) for _ in range(4))
    attrs = {"alpha": 0.95, "beta": 0.85, "epsilon": 0.01, "norm_coefficient": 0.1, "norm_coefficient_post": 0.2}
    alpha, beta, epsilon, norm, post = (float(np.float32(value)) for value in attrs.values())
    inputs = [np.asarray(0.1, np.float32), np.asarray(count), x, g, v, h]
    slope = norm * x + g
    mean, squares = alpha * v + (1 - alpha) * slope, beta * h + (1 - beta) * slope**2
    rate = float(np.float32(0.1)) * (np.sqrt(1 - beta**count) / (1 - alpha**count) if count else 1)
    expected = (1 - post) * (x - rate * mean / (np.sqrt(squares) + epsilon)), mean, squares
    for actual, wanted in zip(ours(optimiser("Adam", inputs, attrs, 3), inputs, way), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-12)


def test_optimisers_refuse_what_is_no_group() -> None:
    inputs = [np.asarray(0.1, np.float32), np.asarray(0), f32(2), f32(2)]
    with pytest.raises(LowerFailed, match="groups of 3"):
        ours(optimiser("Adagrad", inputs, {}, 2), inputs)


GRADIENT = "ai.onnx.preview.training.Gradient"


def numeric(f: Any, x: Any) -> Any:
    """The gradient of the sum of f, by differences."""
    found = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-6
        found[place] = (np.sum(f(x + step)) - np.sum(f(x - step))) / 2e-6
    return found


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
def test_gradients_of_a_small_network(way: tuple[bool, Any]) -> None:
    """With an initializer on the way, sizes that are symbols, and a body that the model's function opens up."""
    model = parsed(
        f"""g (double[n, 3] x, double[3, 4] w, double[4] c) =>
            (double y, double[n, 3] dx, double[3, 4] dw, double[4] dc) <double two = {{2}}> {{
            h = MatMul(x, w)
            z = Add(h, c)
            a = Gelu(z)
            p = LogSoftmax(a)
            m = ReduceMean <keepdims: int = 0> (p)
            y = Mul(m, two)
            dx, dw, dc = {GRADIENT} <xs = ["x", "w", "c"], y = "y"> (x, w, c)
        }}""",
        opset=20,
        training=True,
    )
    at = [RNG.normal(size=shape) for shape in ((5, 3), (3, 4), (4,))]
    _, *found = ours(model, at, way)
    for i, gradient in enumerate(found):
        expected = numeric(lambda v, i=i: ours(model, [*at[:i], v, *at[i + 1 :]])[0], at[i])
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


def test_gradients_of_a_convolution() -> None:
    model = parsed(
        f"""g (double[1, 2, 5, 5] x, double[3, 2, 3, 3] w) =>
            (double[a, b, c, d] y, double[1, 2, 5, 5] dx, double[3, 2, 3, 3] dw) {{
            h = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
            a = Relu(h)
            y = MaxPool <kernel_shape = [2, 2]> (a)
            dx, dw = {GRADIENT} <xs = ["x", "w"], y = "y"> (x, w)
        }}""",
        training=True,
    )
    at = [RNG.normal(size=shape) for shape in ((1, 2, 5, 5), (3, 2, 3, 3))]
    _, *found = ours(model, at)
    for i, gradient in enumerate(found):
        expected = numeric(lambda v, i=i: ours(model, [*at[:i], v, *at[i + 1 :]])[0], at[i])
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


def test_gradients_of_gradients() -> None:
    model = parsed(
        f"""g (double x) => (double d, double dd) {{
            s = Mul(x, x)
            y = Sin(s)
            d = {GRADIENT} <xs = ["x"], y = "y"> (x)
            dd = {GRADIENT} <xs = ["x"], y = "d"> (x)
        }}""",
        training=True,
    )
    d, dd = ours(model, [np.asarray(0.7)])
    assert d == pytest.approx(1.4 * np.cos(0.49))
    assert dd == pytest.approx(2 * np.cos(0.49) - 4 * 0.49 * np.sin(0.49))


def test_gradients_are_taken_where_the_inputs_say() -> None:
    """At another point than the graph's own, of an intermediate tensor, and twice the same value for two names."""
    model = parsed(
        f"""g (double x, double z, double at) => (double y, double dh, double dz, double da, double db, double dn) {{
            h = Exp(x)
            y = Mul(h, z)
            dh, dz = {GRADIENT} <xs = ["h", "z"], y = "y"> (at, z)
            da, db = {GRADIENT} <xs = ["h", "z"], y = "y"> (at, at)
            dn = {GRADIENT} <xs = ["at"], zs = ["x", "z"], y = "y"> (at, x, z)
        }}""",
        training=True,
    )
    y, *found = ours(model, [np.asarray(v) for v in (0.5, 3.0, 5.0)])
    assert y == pytest.approx(3 * np.exp(0.5))
    assert [float(v) for v in found] == [3.0, 5.0, 5.0, 5.0, 0.0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = CumProd(x, zero)", "cum_prod has no derivative"),
        ("k = NonZero(x) z = Cast <to: int = 11> (k) s = ReduceSum(x) y = Mul(z, s)", "known only after a run"),
    ],
)
def test_gradients_say_what_has_none(body: str, message: str) -> None:
    gradient = f'dx = {GRADIENT} <xs = ["x"], y = "y"> (x)'
    text = f"g (double[2, 2] x) => (double[2, 2] dx) <int64 zero = {{0}}> {{ {body} {gradient} }}"
    with pytest.raises(LowerFailed, match=message):
        ours(parsed(text, opset=26, training=True), [np.eye(2)])


def test_a_gradient_of_itself_is_refused() -> None:
    text = f'g (double x) => (double d) {{ d = {GRADIENT} <xs = ["x"], y = "d"> (x) }}'
    with pytest.raises(LimitExceeded, match="nest"):
        ours(parsed(text, training=True), [np.asarray(1.0)])


def test_initializers_that_equal_other_constants_stay_apart() -> None:
    model = parsed(
        f"""g (double x) => (double y, double dw) <double w = {{2}}, double two = {{2}}> {{
            a = Mul(x, w)
            y = Mul(a, two)
            dw = {GRADIENT} <xs = ["w"], zs = ["x"], y = "y"> (w, x)
        }}""",
        training=True,
    )
    assert [float(v) for v in ours(model, [np.asarray(3.0)])] == [12.0, 6.0]
