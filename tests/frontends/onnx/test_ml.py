"""ai.onnx.ml against ONNX Runtime: one row a case, run whole and decomposed, exact and precise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from assay.errors import AssayError
from assay.evidence.compare.arrays import closeness
from assay.frontends.onnx import load
from assay.ops.lowering import lower
from assay.targets.reference import ReferenceTarget

onnxruntime.set_default_logger_severity(4)

RNG = np.random.default_rng(7)
NAN = float("nan")


class Case(NamedTuple):
    """One node on these inputs; `outputs` results are asked for."""

    name: str
    op: str
    inputs: Sequence[Any]
    attrs: dict[str, Any]
    outputs: int = 1
    version: int = 3
    absolute: float = 2e-6


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    return RNG.uniform(low, high, shape).astype(np.float32)


def words(*items: str) -> Any:
    return np.array(items, dtype=object)


def model(case: Case) -> onnx.ModelProto:
    """A model of that one node, its inputs of unknown sizes."""
    names = [f"x{i}" for i in range(len(case.inputs))]
    infos = [input_info(name, value) for name, value in zip(names, case.inputs, strict=True)]
    results = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, results, domain="ai.onnx.ml", **case.attrs)
    graph = helper.make_graph([node], case.op, infos, [onnx.ValueInfoProto(name=name) for name in results])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", case.version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def input_info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, dict):
        key, item = next(iter(value.items()))
        kinds = {str: TensorProto.STRING, int: TensorProto.INT64, float: TensorProto.FLOAT}
        inner = helper.make_tensor_type_proto(kinds[type(item)], [])
        proto = onnx.TypeProto()
        proto.map_type.key_type = kinds[type(key)]
        proto.map_type.value_type.CopyFrom(inner)
        return helper.make_value_info(name, proto)
    code = TensorProto.STRING if value.dtype == object else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, code, [None] * value.ndim)


def run(case: Case, *, decomposed: bool = False, mode: Any = "exact") -> list[Any]:
    graph = lower(load(model(case)), decomposed=decomposed)
    return list(ReferenceTarget(mode).compile(graph).run(list(case.inputs)))


def peer(case: Case) -> list[Any]:
    session = onnxruntime.InferenceSession(model(case).SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {f"x{i}": value for i, value in enumerate(case.inputs)}))


def assert_close(case: Case, actual: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert a.keys() == e.keys()
            np.testing.assert_allclose(list(a.values()), list(e.values()), rtol=1e-6)
        return
    found = closeness(actual, expected, relative=2e-5, absolute=case.absolute)
    assert found.ok, f"{found}\ngot {actual}\nnot {expected}"


X = f32(6, 3)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")

# --- encoders, scaling, linear models

ENCODERS = [
    Case("label encoder 1, words", "LabelEncoder", [words("b", "x", "a")], {"classes_strings": ["a", "b"]}, version=1),
    Case("label encoder 1, numbers", "LabelEncoder", [np.array([1, 0, 5])], {"classes_strings": ["a", "b"]}, version=1),
    Case(
        "label encoder 2, words to floats",
        "LabelEncoder",
        [words("b", "x", "a").reshape(3, 1)],
        {"keys_strings": ["a", "b"], "values_floats": [1.5, 2.5], "default_float": -3.0},
        version=2,
    ),
    Case(
        "label encoder 2, floats to numbers",
        "LabelEncoder",
        [np.array([1.5, 7.0, 2.5], np.float32)],
        {"keys_floats": [1.5, 2.5], "values_int64s": [4, 5]},
        version=2,
    ),
    Case(
        "label encoder 2, numbers to words",
        "LabelEncoder",
        [np.array([[3, 4], [9, 3]])],
        {"keys_int64s": [3, 4], "values_strings": ["three", "four"]},
        version=2,
    ),
    Case(
        "label encoder 4, tensors",
        "LabelEncoder",
        [np.array([1.0, 3.0, NAN], np.float64)],
        {
            "keys_tensor": numpy_helper.from_array(np.array([1.0, NAN])),
            "values_tensor": numpy_helper.from_array(np.array([7.0, 8.0])),
            "default_tensor": numpy_helper.from_array(np.array([0.5])),
        },
        version=4,
    ),
    Case(
        "category mapper", "CategoryMapper", [words("x", "y", "z")], {"cats_strings": ["y", "x"], "cats_int64s": [7, 9]}
    ),
    Case(
        "category mapper, back",
        "CategoryMapper",
        [np.array([9, 1])],
        {"cats_strings": ["y", "x"], "cats_int64s": [7, 9]},
    ),
    Case("one-hot words", "OneHotEncoder", [words("a", "c")], {"cats_strings": ["a", "b"]}),
    Case("one-hot numbers", "OneHotEncoder", [np.array([[1, 5], [2, 1]])], {"cats_int64s": [1, 2, 3]}),
    Case("one-hot floats", "OneHotEncoder", [np.array([[1.0, 2.0]], np.float32)], {"cats_int64s": [1, 2], "zeros": 0}),
    Case("features of rows", "ArrayFeatureExtractor", [f32(2, 4), np.array([3, 0, 3])], {}),
    Case("features of a vector", "ArrayFeatureExtractor", [f32(4), np.array([[3, 0]])], {}),
    Case("features of words", "ArrayFeatureExtractor", [words("a", "b", "c"), np.array([1])], {}),
    Case("feature vectorizer", "FeatureVectorizer", [f32(2, 3), f32(2, 1)], {"inputdimensions": [2, 3]}),
    Case("feature vectorizer, vectors", "FeatureVectorizer", [np.arange(3), np.arange(2)], {"inputdimensions": [3, 2]}),
]
SCALING = [
    Case("scaler", "Scaler", [X], {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 0.5, 3.0]}),
    Case("scaler of numbers", "Scaler", [np.arange(6).reshape(2, 3)], {"offset": [0.5], "scale": [2.0]}),
    Case("scaler of doubles", "Scaler", [X.astype(np.float64)], {"offset": [0.5], "scale": [2.0]}),
    *(Case(f"normalizer {norm}", "Normalizer", [X], {"norm": norm}) for norm in ("MAX", "L1", "L2")),
    *(
        Case(f"normalizer {norm} of numbers", "Normalizer", [np.array([[3, -4], [0, 0]])], {"norm": norm})
        for norm in ("MAX", "L1", "L2")
    ),
    Case("normalizer of a vector", "Normalizer", [X[0]], {"norm": "L2"}),
    Case("binarizer", "Binarizer", [np.array([[1.0, 0.5, -1.0]], np.float32)], {"threshold": 0.5}),
    Case(
        "imputer",
        "Imputer",
        [np.array([[1.0, NAN], [NAN, 2.0]], np.float32)],
        {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": NAN},
    ),
    Case(
        "imputer, one value",
        "Imputer",
        [np.array([[1, -1], [-1, 2]])],
        {"imputed_value_int64s": [9], "replaced_value_int64": -1},
    ),
]
LINEAR = [
    Case("linear regressor", "LinearRegressor", [X], {"coefficients": [0.5, -1.0, 2.0], "intercepts": [0.25]}),
    Case("linear regressor of a vector", "LinearRegressor", [X[0]], {"coefficients": [0.5, -1.0, 2.0]}),
    *(
        Case(
            f"linear regressor, two targets, {transform}",
            "LinearRegressor",
            [f32(4, 2, low=0.1, high=0.3)],
            {
                "coefficients": [0.5, 1.0, 2.0, 0.25],
                "intercepts": [0.05, 0.1],
                "targets": 2,
                "post_transform": transform,
            },
        )
        for transform in TRANSFORMS
    ),
    *(
        Case(
            f"linear classifier, three classes, {transform}",
            "LinearClassifier",
            [f32(5, 2, low=0.1, high=0.3)],
            {
                "coefficients": [0.5, 1.0, 2.0, 0.25, 1.0, 1.0],
                "intercepts": [0.05, 0.1, 0.0],
                "classlabels_ints": [10, 20, 30],
                "post_transform": transform,
            },
            2,
        )
        for transform in TRANSFORMS
    ),
    Case(
        "linear classifier, two rows",
        "LinearClassifier",
        [X],
        {
            "coefficients": [1.0, 2.0, -1.0, -1.0, -2.0, 1.0],
            "intercepts": [0.1, -0.1],
            "classlabels_strings": ["no", "yes"],
            "post_transform": "LOGISTIC",
        },
        2,
    ),
    Case(
        "linear classifier, one row",
        "LinearClassifier",
        [X],
        {"coefficients": [1.0, 2.0, -1.0], "intercepts": [0.1], "classlabels_strings": ["no", "yes"]},
        2,
    ),
    Case(
        "linear classifier, one row of doubles",
        "LinearClassifier",
        [X.astype(np.float64)],
        {"coefficients": [1.0, 2.0, -1.0], "intercepts": [0.1], "classlabels_ints": [3, 8]},
        2,
    ),
]

# --- support vectors

KERNELS: dict[str, list[float]] = {
    "LINEAR": [0.0, 0.0, 0.0],
    "POLY": [0.5, 1.0, 3.0],
    "RBF": [0.3, 0.0, 0.0],
    "SIGMOID": [0.2, 0.1, 0.0],
}


def machine(kernel: str, **more: Any) -> dict[str, Any]:
    return {"kernel_type": kernel, "kernel_params": KERNELS[kernel], **more}


VECTORS = f32(7, 3).reshape(-1).tolist()
THREE = {
    "vectors_per_class": [3, 2, 2],
    "support_vectors": VECTORS,
    "coefficients": f32(14).tolist(),
    "rho": [0.1, -0.2, 0.3],
    "classlabels_ints": [5, 6, 7],
}
PROBABLE = {"prob_a": [-1.5, -0.7, -2.0], "prob_b": [0.1, -0.3, 0.2]}
TWO = {
    "vectors_per_class": [4, 3],
    "support_vectors": VECTORS,
    "coefficients": f32(7).tolist(),
    "rho": [0.05],
    "classlabels_strings": ["left", "right"],
}
SVM = [
    *(
        Case(
            f"svm regressor {kernel}",
            "SVMRegressor",
            [X],
            machine(kernel, n_supports=7, support_vectors=VECTORS, coefficients=f32(7).tolist(), rho=[0.25], **more),
        )
        for kernel in KERNELS
        for more in ({}, {"one_class": 1})
    ),
    Case("svm regressor, linear", "SVMRegressor", [X], machine("LINEAR", coefficients=[1.0, -2.0, 0.5], rho=[0.5])),
    *(Case(f"svm classifier {kernel}", "SVMClassifier", [X], machine(kernel, **THREE), 2) for kernel in KERNELS),
    *(
        Case(f"svm classifier {kernel}, probable", "SVMClassifier", [X], machine(kernel, **THREE, **PROBABLE), 2)
        for kernel in KERNELS
    ),
    Case("svm classifier, two classes", "SVMClassifier", [X], machine("RBF", **TWO), 2),
    Case(
        "svm classifier, two classes, probable",
        "SVMClassifier",
        [X],
        machine("RBF", **TWO, prob_a=[-1.2], prob_b=[0.3]),
        2,
    ),
    Case("svm classifier, softmax", "SVMClassifier", [X], machine("RBF", **THREE, post_transform="SOFTMAX"), 2),
    Case("svm classifier, numbers", "SVMClassifier", [np.arange(9).reshape(3, 3)], machine("RBF", **THREE), 2),
    Case(
        "svm classifier, no vectors",
        "SVMClassifier",
        [X],
        machine("LINEAR", coefficients=f32(9).tolist(), rho=[0.1], classlabels_ints=[1, 2, 3]),
        2,
    ),
    Case(
        "svm classifier, no vectors, two classes",
        "SVMClassifier",
        [X],
        machine("LINEAR", coefficients=f32(6).tolist(), rho=[0.1], classlabels_ints=[1, 2]),
        2,
    ),
]

# --- trees

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def nodes(modes: Sequence[str], **more: Any) -> dict[str, Any]:
    """Tree 0: 0 → (1 → (3, 4), 2); tree 1: 0 → (1, 2). The thresholds are among the numbers 0, 1, 2."""
    lists = {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
        "nodes_values": [1.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        "nodes_modes": [modes[0], modes[1], "LEAF", "LEAF", "LEAF", modes[2], "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
    }
    return {**lists, **more}


def votes(
    prefix: str, ids: Sequence[int], weights: Sequence[float], leaves: Sequence[tuple[int, int]] | None = None
) -> dict[str, Any]:
    """A vote of each leaf, or of the (tree, node) given."""
    places = leaves or [(0, 2), (0, 3), (0, 4), (1, 1), (1, 2)]
    return {
        f"{prefix}_treeids": [tree for tree, _ in places],
        f"{prefix}_nodeids": [node for _, node in places],
        f"{prefix}_ids": list(ids),
        f"{prefix}_weights": list(weights),
    }


GRID = RNG.integers(0, 4, (12, 3)).astype(np.float32)
HOLES = np.where(RNG.uniform(size=GRID.shape) < 0.3, np.float32(NAN), GRID)
FIVE = [0.1, 0.2, 0.05, 0.3, 0.15]
MIXED = [0.1, -0.2, 0.05, 0.3, -0.15]
EACH = [(tree, node) for tree, node in ((0, 2), (0, 3), (0, 4), (1, 1), (1, 2)) for _ in range(3)]
DENSE = RNG.uniform(0.05, 0.3, 15).tolist()
LEQ = ("BRANCH_LEQ",) * 3


def regressor(name: str, x: Any, modes: Sequence[str] = LEQ, ids: Sequence[int] = (0,) * 5, **more: Any) -> Case:
    targets = max(ids) + 1
    return Case(
        f"tree regressor, {name}",
        "TreeEnsembleRegressor",
        [x],
        {**nodes(modes), **votes("target", ids, FIVE), "n_targets": targets, **more},
    )


def classifier(
    name: str, x: Any, ids: Sequence[int], weights: Sequence[float], labels: Sequence[Any], **more: Any
) -> Case:
    key = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    leaves = EACH if len(ids) == 15 else None
    attrs = {**nodes(LEQ), **votes("class", ids, weights, leaves), key: list(labels), **more}
    return Case(f"tree classifier, {name}", "TreeEnsembleClassifier", [x], attrs, 2)


TREES = [
    *(regressor(mode, GRID, (mode,) * 3) for mode in MODES),
    *(regressor(f"modes {modes}", GRID, modes) for modes in (MODES[:3], MODES[3:], MODES[1:6:2])),
    *(
        regressor(f"{mode} with NaN", HOLES, (mode,) * 3, nodes_missing_value_tracks_true=[1, 0, 0, 0, 0, 1, 0, 0])
        for mode in MODES
    ),
    regressor("NaN unforeseen", HOLES),
    regressor("doubles", GRID.astype(np.float64)),
    *(regressor(how, GRID, aggregate_function=how, base_values=[0.5]) for how in ("SUM", "AVERAGE", "MIN", "MAX")),
    *(
        regressor(f"{how}, two targets", GRID, ids=(0, 0, 0, 1, 1), aggregate_function=how, base_values=[0.5, 0.25])
        for how in ("SUM", "AVERAGE", "MIN", "MAX")
    ),
    *(
        regressor(f"two targets, {transform}", GRID, ids=(0, 0, 0, 1, 1), post_transform=transform)
        for transform in TRANSFORMS
    ),
    classifier("three classes, all vote", GRID, [0, 1, 2] * 5, DENSE, ["a", "b", "c"]),
    classifier("three classes with base values", GRID, [0, 1, 2] * 5, DENSE, [1, 5, 9], base_values=[0.1, 0.2, 0.05]),
    *(
        classifier(f"three classes, {t}", GRID, [0, 1, 2] * 5, DENSE, [1, 5, 9], post_transform=t)._replace(
            absolute=2e-4
        )
        for t in TRANSFORMS
    ),
    classifier("three classes, one vote a leaf", GRID, [0, 1, 2, 0, 2], FIVE, [1, 5, 9]),
    classifier("three classes, votes against", GRID, [0, 1, 2, 0, 2], [-w for w in FIVE], [1, 5, 9]),
    *(
        classifier(f"two classes, first, {t}", GRID, [0] * 5, [4 * w for w in FIVE], [5, 7], post_transform=t)
        for t in ("NONE", "LOGISTIC")
    ),
    *(
        classifier(f"two classes, first, mixed, {t}", GRID, [0] * 5, MIXED, [5, 7], post_transform=t)
        for t in ("NONE", "LOGISTIC")
    ),
    classifier(
        "two classes, first, base value",
        GRID,
        [0] * 5,
        MIXED,
        ["no", "yes"],
        base_values=[0.05],
        post_transform="LOGISTIC",
    ),
    *(
        classifier(f"two classes, second, {t}", GRID, [1] * 5, [4 * w for w in FIVE], [5, 7], post_transform=t)
        for t in ("NONE", "SOFTMAX")
    ),
    classifier("two classes, second, mixed", GRID, [1] * 5, MIXED, ["no", "yes"], post_transform="LOGISTIC"),
]


def tensor(values: Sequence[float], dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype))


def ensemble(name: str, modes: Sequence[int], x: Any = GRID, **more: Any) -> Case:
    attrs: dict[str, Any] = {
        "nodes_splits": tensor([1.0, 2.0, 1.0], x.dtype),
        "nodes_featureids": [0, 1, 2],
        "nodes_modes": tensor(modes, np.uint8),
        "nodes_truenodeids": [1, 1, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [0, 2, 4],
        "nodes_falseleafs": [1, 1, 1],
        "tree_roots": [0, 2],
        "leaf_targetids": [0, 1, 0, 1, 1],
        "leaf_weights": tensor(FIVE, x.dtype),
        "n_targets": 2,
    }
    return Case(f"tree ensemble, {name}", "TreeEnsemble", [x], {**attrs, **more}, version=5)


SETS = tensor([0.0, 2.0, NAN, 1.0, NAN])
ENSEMBLES = [
    *(ensemble(mode, (i,) * 3) for i, mode in enumerate(MODES)),
    *(ensemble(f"aggregate {how}", (0, 1, 2), aggregate_function=how) for how in range(4)),
    *(ensemble(f"transform {which}", (0, 1, 2), post_transform=which)._replace(absolute=2e-4) for which in (0, 3, 4)),
    ensemble("members", (6, 0, 6), membership_values=SETS),
    ensemble("members and NaN", (6, 0, 6), HOLES, membership_values=SETS, nodes_missing_value_tracks_true=[1, 0, 0]),
    ensemble("doubles", (0, 0, 0), GRID.astype(np.float64)),
]

# --- maps

MAPS = [
    Case("zip map, words", "ZipMap", [f32(3, 2)], {"classlabels_strings": ["a", "b"]}),
    Case("zip map, numbers", "ZipMap", [f32(1, 2)], {"classlabels_int64s": [4, 9]}),
    Case("dictionary of floats", "DictVectorizer", [{"a": 4.0, "c": 8.0}], {"string_vocabulary": ["a", "c", "b", "z"]}),
    *(
        Case(f"cast map {to} {form}", "CastMap", [{3: 2.5, 1: 4.0}], {"cast_to": to, "map_form": form, "max_map": 5})
        for to in ("TO_FLOAT", "TO_INT64", "TO_STRING")
        for form in ("DENSE", "SPARSE")
    ),
]

CASES = [*ENCODERS, *SCALING, *LINEAR, *SVM, *TREES, *ENSEMBLES, *MAPS]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_agrees_with_onnxruntime(case: Case) -> None:
    expected = peer(case)
    for decomposed in (False, True):
        for actual, wanted in zip(run(case, decomposed=decomposed), expected, strict=True):
            assert_close(case, actual, wanted)
    for actual, wanted in zip(run(case, mode="precise"), expected, strict=True):
        assert_close(case, actual, wanted)


# --- what ONNX Runtime cannot be asked, or answers otherwise than the standard says

SPARE = {"map_form": "SPARSE", "max_map": 4}
TOLD: list[tuple[Case, Any]] = [
    (
        Case("dictionary of words", "DictVectorizer", [{3: "x"}], {"int64_vocabulary": [1, 3]}),
        words("", "x").reshape(1, 2),
    ),
    (
        Case("dictionary of numbers", "DictVectorizer", [{"a": 4}], {"string_vocabulary": ["b", "a"]}),
        np.array([[0, 4]]),
    ),
    (Case("map of words, dense", "CastMap", [{3: "2", 1: "4"}], {"cast_to": "TO_INT64"}), np.array([[4, 2]])),
    (Case("map of words, sparse", "CastMap", [{3: "2", 1: "4"}], SPARE), np.array([[0, 4, 0, 2]], np.float32)),
    (Case("NaN is not above", "Binarizer", [np.array([NAN, 1.0], np.float32)], {}), np.array([0, 1], np.float32)),
    (
        Case(
            "NaN as a key",
            "LabelEncoder",
            [np.array([NAN, 7.0], np.float32)],
            {"keys_floats": [1.5, NAN], "values_int64s": [4, 6]},
            version=2,
        ),
        np.array([6, -1]),
    ),
    (
        Case(
            "the last of equal keys",
            "LabelEncoder",
            [words("a")],
            {"keys_strings": ["a", "a"], "values_int64s": [4, 6]},
            version=4,
        ),
        np.array([6]),
    ),
    (
        Case("a vector zipped", "ZipMap", [np.array([0.5, 2.0], np.float32)], {"classlabels_int64s": [4, 9]}),
        [{4: 0.5, 9: 2.0}],
    ),
]


@pytest.mark.parametrize(("case", "expected"), TOLD, ids=[case.name for case, _ in TOLD])
def test_gives_what_the_standard_says(case: Case, expected: Any) -> None:
    for decomposed in (False, True):
        assert_close(case, run(case, decomposed=decomposed)[0], expected)


def test_targets_without_votes_keep_their_base_value() -> None:
    (scores,) = run(regressor("", GRID, ids=(0, 1, 0, 1, 1), base_values=[0.5, 0.25]))
    assert 0.5 in scores[:, 0].tolist()


def test_transforms_of_an_ensemble_have_the_numbers_of_the_standard() -> None:
    plain, softmax, logistic = (run(ensemble("", (0, 1, 2), post_transform=which))[0] for which in range(3))
    np.testing.assert_allclose(softmax, np.exp(plain) / np.exp(plain).sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(logistic, 1 / (1 + np.exp(-plain)), rtol=1e-6)


def test_trees_take_integers() -> None:
    whole, rounded = (run(regressor("", x))[0] for x in (GRID.astype(np.int64), GRID))
    assert whole.tolist() == rounded.tolist()


def test_two_classes_with_votes_for_both_take_the_larger_score() -> None:
    case = classifier("", GRID, [0, 1, 2] * 5, DENSE, [5, 7, 9])
    both = {**case.attrs, "class_ids": [0, 1, 1] * 5, "classlabels_int64s": [5, 7]}
    label, scores = run(case._replace(attrs=both))
    assert label.tolist() == np.where(scores[:, 1] > scores[:, 0], 7, 5).tolist()


def test_one_target_is_transformed_too() -> None:
    plain, logistic = (run(regressor("", GRID, post_transform=name))[0] for name in ("NONE", "LOGISTIC"))
    np.testing.assert_allclose(logistic, 1 / (1 + np.exp(-plain)), rtol=1e-6)


@pytest.mark.parametrize("x", [np.array([3, 4, 5], np.int32), np.array([3, 4, 5])])
def test_integers_are_compared_with_the_threshold_itself(x: Any) -> None:
    for threshold, expected in ((3.5, [0, 1, 1]), (4.0, [0, 0, 1]), (-1e30, [1, 1, 1]), (1e30, [0, 0, 0])):
        (result,) = run(Case("", "Binarizer", [x], {"threshold": threshold}))
        assert result.dtype == x.dtype
        assert result.tolist() == expected


# --- errors

BROKEN = [
    Case("unknown category", "OneHotEncoder", [np.array([9])], {"cats_int64s": [1], "zeros": 0}),
    Case("key out of range", "CastMap", [{7: 1.0}], {"map_form": "SPARSE", "max_map": 3}),
    Case("unknown transform", "LinearRegressor", [X], {"coefficients": [1.0] * 3, "post_transform": "CUBE"}),
    Case("unknown norm", "Normalizer", [X], {"norm": "L7"}),
    Case(
        "unknown kernel",
        "SVMRegressor",
        [X],
        {"n_supports": 1, "support_vectors": [1.0] * 3, "coefficients": [1.0], "rho": [0.0], "kernel_type": "CUBE"},
    ),
    Case("too few intercepts", "LinearRegressor", [X], {"coefficients": [1.0] * 6, "intercepts": [1.0], "targets": 2}),
    Case(
        "keys without values", "LabelEncoder", [words("a")], {"keys_strings": ["a"], "values_int64s": [1, 2]}, version=2
    ),
    regressor("unknown mode", GRID, ("BRANCH_MAYBE",) * 3),
    regressor("no such node", GRID, nodes_truenodeids=[9, 3, 0, 0, 0, 1, 0, 0]),
    regressor("a cycle", GRID, nodes_truenodeids=[1, 0, 0, 0, 0, 1, 0, 0]),
    regressor("a node twice", GRID, nodes_nodeids=[0, 1, 2, 3, 3, 0, 1, 2]),
    regressor("lists of different lengths", GRID, nodes_featureids=[0]),
    regressor("a target too many", GRID, n_targets=1, target_ids=[0, 1, 2, 3, 4]),
]


@pytest.mark.parametrize("case", BROKEN, ids=[case.name for case in BROKEN])
def test_what_is_broken_gives_a_typed_error(case: Case) -> None:
    with pytest.raises(AssayError):
        run(case)
