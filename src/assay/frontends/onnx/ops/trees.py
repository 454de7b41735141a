"""ai.onnx.ml: ensembles of decision trees. Their attributes become the tables of the core op `tree_leaves`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay.frontends.onnx.ops.common import as_i64
from assay.frontends.onnx.ops.ml import ML, cast_to, chosen, computed_in, labels_of, matrix, transformed, two_scores
from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Value

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_EQUAL, _MEMBER, _LEAF = 4, 6, 7
_COLUMNS = ("features", "thresholds", "modes", "yes", "no", "missing")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class Forest:
    """Nodes as `tree_leaves` takes them, and votes: leaf number, target and weight, one row a vote."""

    features: Array
    thresholds: Array
    modes: Array
    yes: Array
    no: Array
    missing: Array
    roots: Array
    voters: Array
    targets: Array
    weights: Array
    count: int

    def __post_init__(self) -> None:
        sizes = {len(getattr(self, name)) for name in _COLUMNS}
        if len(sizes) != 1 or len({len(self.voters), len(self.targets), len(self.weights)}) != 1:
            raise ValueError("the lists that describe the trees differ in length")
        if self.count < 1 or np.any((self.targets < 0) | (self.targets >= self.count)):
            raise ValueError(f"a vote is for none of the {self.count} targets")
        links = np.concatenate([self.yes, self.no, self.roots, self.voters])
        if np.any((links < 0) | (links >= sizes.pop())):
            raise ValueError("a node, root or vote refers to a node that does not exist")

    @property
    def leaves(self) -> Array:
        """Which nodes lead nowhere else."""
        numbers = np.arange(len(self.yes))
        return (self.yes == numbers) & (self.no == numbers)

    def depth(self) -> int:
        """The most steps from a node to a leaf; ValueError if nodes form a cycle."""
        inner = ~self.leaves
        above = np.bincount(np.concatenate([self.yes[inner], self.no[inner]]), minlength=len(inner))
        level, seen, steps = np.flatnonzero(above == 0), 0, -1
        while level.size:
            seen, steps = seen + level.size, steps + 1
            parents = level[inner[level]]
            below = np.concatenate([self.yes[parents], self.no[parents]])
            np.subtract.at(above, below, 1)
            children = np.unique(below)
            level = children[above[children] == 0]
        if seen < len(inner):
            raise ValueError("the nodes of a tree form a cycle")
        return max(steps, 0)

    def table(self, empty: float, combine: np.ufunc) -> Array:
        """For each node and target the votes combined, `empty` where there is none."""
        table = np.full((len(self.yes), self.count), empty, self.weights.dtype)
        combine.at(table, (self.voters, self.targets), self.weights)
        return table

    def voted(self) -> Array:
        """For each node and target, whether there is a vote."""
        table = np.zeros((len(self.yes), self.count), np.bool_)
        table[self.voters, self.targets] = True
        return table


def _missing(n: Source, count: int) -> Array:
    flags = n.ints("nodes_missing_value_tracks_true", None) or (0,) * count
    return np.array(flags, np.bool_)


# --- reading attributes


def _floats(n: Source, name: str) -> Array:
    if n.has(f"{name}_as_tensor"):
        return n.array(f"{name}_as_tensor").reshape(-1)
    return np.array(n.floats(name, ()), np.float32)


def _mode(name: str) -> int:
    if name == "LEAF":
        return _LEAF
    if name not in _MODES:
        raise ValueError(f"the node mode '{name}' is unknown")
    return _MODES.index(name)


def _listed_forest(n: Source, votes: str, count: int) -> Forest:
    """The forest of versions up to 3: nodes named by tree and node ids, leaves among them; `votes` is the prefix of
    the lists of votes."""
    tree, node = (np.array(n.ints(f"nodes_{name}"), np.int64) for name in ("treeids", "nodeids"))
    modes = np.array([_mode(name) for name in n.strings("nodes_modes")], np.uint8)
    if not len(tree) == len(node) == len(modes):
        raise ValueError("the lists that describe the trees differ in length")
    index = _Index(tree, node)
    numbers = np.arange(len(tree))
    inner = modes != _LEAF
    yes, no = numbers.copy(), numbers.copy()
    for links, name in ((yes, "truenodeids"), (no, "falsenodeids")):
        links[inner] = index.find(tree[inner], np.array(n.ints(f"nodes_{name}"), np.int64)[inner])
    voters = index.find(*(np.array(n.ints(f"{votes}_{name}"), np.int64) for name in ("treeids", "nodeids")))
    at_leaf = ~inner[voters]
    _, first = np.unique(tree, return_index=True)
    return Forest(
        features=np.array(n.ints("nodes_featureids"), np.int64),
        thresholds=_floats(n, "nodes_values"),
        modes=modes,
        yes=yes,
        no=no,
        missing=_missing(n, len(tree)),
        roots=np.sort(first),
        voters=voters[at_leaf],
        targets=np.array(n.ints(f"{votes}_ids"), np.int64)[at_leaf],
        weights=_floats(n, f"{votes}_weights")[at_leaf],
        count=count,
    )


class _Index:
    """Finds nodes by the ids of their tree and their own."""

    def __init__(self, tree: Array, node: Array) -> None:
        self.base = int(node.max(initial=0)) + 1
        keys = tree * self.base + node
        if node.min(initial=0) < 0 or len(np.unique(keys)) < len(keys):
            raise ValueError("a node's id is negative or used twice in a tree")
        self.order = np.argsort(keys)
        self.keys = keys[self.order]

    def find(self, tree: Array, node: Array) -> Array:
        """The numbers of nodes; ValueError if one does not exist."""
        wanted = tree * self.base + node
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        unknown = (node < 0) | (node >= self.base) | (self.keys[place] != wanted)
        if np.any(unknown):
            where = int(np.flatnonzero(unknown)[0])
            raise ValueError(f"tree {int(tree[where])} has no node {int(node[where])}")
        return self.order[place]


def _split_forest(n: Source) -> Forest:
    """The forest of TreeEnsemble: nodes and leaves in lists of their own; here leaves are numbered after the nodes."""
    modes = n.array("nodes_modes").reshape(-1).astype(np.uint8)
    count, leaves = len(modes), len(n.ints("leaf_targetids"))
    own = np.arange(count, count + leaves)

    def links(branch: str) -> Array:
        ids = np.array(n.ints(f"nodes_{branch}nodeids"), np.int64)
        return ids + np.array(n.ints(f"nodes_{branch}leafs"), np.int64) * count

    padding = np.zeros(leaves, np.int64)
    thresholds = n.array("nodes_splits").reshape(-1)
    forest = Forest(
        features=np.concatenate([np.array(n.ints("nodes_featureids"), np.int64), padding]),
        thresholds=np.concatenate([thresholds, padding.astype(thresholds.dtype)]),
        modes=np.concatenate([modes, padding.astype(np.uint8)]),
        yes=np.concatenate([links("true"), own]),
        no=np.concatenate([links("false"), own]),
        missing=np.concatenate([_missing(n, count), padding.astype(np.bool_)]),
        roots=np.array(n.ints("tree_roots"), np.int64),
        voters=own,
        targets=np.array(n.ints("leaf_targetids"), np.int64),
        weights=n.array("leaf_weights").reshape(-1),
        count=n.int("n_targets", 1),
    )
    return _without_members(forest, n.array("membership_values", None))


def _without_members(forest: Forest, values: Array | None) -> Forest:
    """The forest with each test for membership in a set as a chain of tests for equality."""
    members = np.flatnonzero(forest.modes == _MEMBER)
    if not members.size:
        return forest
    sets = _sets(values)
    if len(sets) != len(members):
        raise ValueError(f"{len(members)} nodes test for membership in {len(sets)} sets")
    columns = {name: getattr(forest, name).tolist() for name in _COLUMNS}
    for node, items in zip(members.tolist(), sets, strict=True):
        columns["modes"][node] = _EQUAL
        columns["thresholds"][node] = items[0]
        for item in items[1:]:
            added = len(columns["modes"])
            for name, column in columns.items():
                column.append(column[node] if name != "thresholds" else item)
            columns["no"][node] = added
            node = added
    return replace(forest, **{name: np.array(column, getattr(forest, name).dtype) for name, column in columns.items()})


def _sets(values: Array | None) -> list[list[float]]:
    """The sets in a list in which each ends with NaN; an empty one holds NaN, which nothing equals."""
    sets: list[list[float]] = []
    current: list[float] = []
    for item in [] if values is None else values.reshape(-1).tolist():
        if item == item:
            current.append(item)
        else:
            sets.append(current or [item])
            current = []
    return [*sets, current] if current else sets


# --- building


def _reached(b: Builder, x: Value, forest: Forest, dtype: DType) -> Value:
    """The leaf that each sample reaches in each tree."""
    inner = forest.modes[~forest.leaves]
    tables = (
        forest.features,
        forest.thresholds.astype(dtype.numpy),
        np.where(forest.leaves, inner[0] if inner.size else 0, forest.modes).astype(np.uint8),
        forest.yes,
        forest.no,
        forest.missing,
        forest.roots,
    )
    return b.tree_leaves(matrix(b, x, dtype), *(b.constant(table) for table in tables), depth=forest.depth())


def _of_leaves(b: Builder, leaves: Value, table: Array) -> Value:
    return b.gather(b.constant(table), leaves, axis=0)


_EXTREMES = {"MIN": ("reduce_min", np.minimum, np.inf), "MAX": ("reduce_max", np.maximum, -np.inf)}


def _scores(b: Builder, leaves: Value, forest: Forest, aggregate: str) -> Value:
    """The votes of the leaves aggregated, [N, targets]; zero where no leaf votes."""
    if aggregate not in _AGGREGATES:
        raise ValueError(f"the aggregate_function '{aggregate}' is none of {', '.join(_AGGREGATES)}")
    if aggregate in _EXTREMES:
        reduction, combine, empty = _EXTREMES[aggregate]
        found = b.emit(reduction, _of_leaves(b, leaves, forest.table(empty, combine)), axes=(1,))[0]
        return found if forest.voted()[forest.leaves].all() else b.where(_any_vote(b, leaves, forest), found, 0.0)
    total = _sums(b, leaves, forest)
    return b.div(total, float(len(forest.roots))) if aggregate == "AVERAGE" else total


def _sums(b: Builder, leaves: Value, forest: Forest) -> Value:
    single = len(np.unique(forest.voters)) == len(forest.voters)
    if forest.count == 1 or not single:
        return b.reduce_sum(_of_leaves(b, leaves, forest.table(0.0, np.add)), axes=(1,))
    weight, target = np.zeros(len(forest.yes), forest.weights.dtype), np.zeros(len(forest.yes), np.int64)
    weight[forest.voters], target[forest.voters] = forest.weights, forest.targets
    rows = b.size(leaves, 0)
    row = b.iota(rows if isinstance(rows, int) else b.reshape(rows, []))
    places = [b.expand(b.unsqueeze(row, axes=(1,)), b.shape_of(leaves)), _of_leaves(b, leaves, target)]
    positions = b.concat(*(b.unsqueeze(place, axes=(2,)) for place in places), axis=2)
    zeros = b.expand(b.constant(np.zeros((), weight.dtype)), b.vector(rows, forest.count))
    return b.scatter_nd(zeros, positions, _of_leaves(b, leaves, weight), reduction="add")


def _any_vote(b: Builder, leaves: Value, forest: Forest) -> Value:
    """For each sample and target, whether one of its leaves votes for it."""
    return b.reduce_max(_of_leaves(b, leaves, forest.voted()), axes=(1,))


def _in_dtype(b: Builder, x: Value, forest: Forest) -> tuple[DType, Forest]:
    """What to compute in, and the forest with its votes in it."""
    doubles = any(table.dtype == np.float64 for table in (forest.thresholds, forest.weights))
    dtype = dtypes.f64 if doubles else computed_in(b, x)
    return dtype, replace(forest, weights=forest.weights.astype(dtype.numpy))


@onnx_op("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(b: Builder, n: Source, x: Value) -> Results:
    dtype = b.dtype(x)
    forest = _split_forest(n)
    forest = replace(forest, weights=forest.weights.astype(dtype.numpy))
    aggregate, transform = _named(n, "aggregate_function", _AGGREGATES), _named(n, "post_transform", _TRANSFORMS)
    return transformed(b, _scores(b, _reached(b, x, forest, dtype), forest, aggregate), transform)


def _named(n: Source, attribute: str, names: Sequence[str]) -> str:
    code = n.int(attribute)
    if not 0 <= code < len(names):
        raise ValueError(f"the {attribute} {code} is unknown")
    return names[code]


@onnx_op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(b: Builder, n: Source, x: Value) -> Results:
    dtype, forest = _in_dtype(b, x, _listed_forest(n, "target", n.int("n_targets", 1)))
    scores = _scores(b, _reached(b, x, forest, dtype), forest, n.str("aggregate_function"))
    base = _base(n, dtype, (0, forest.count))
    based = scores if not base.size else b.add(scores, b.constant(base))
    return cast_to(b, transformed(b, based, n.str("post_transform")), dtypes.f32)


def _base(n: Source, dtype: DType, sizes: Sequence[int]) -> Array:
    base = _floats(n, "base_values").astype(dtype.numpy)
    if base.size not in sizes:
        raise ValueError(f"there are {base.size} base_values, not {' or '.join(map(str, sizes))}")
    return base


@onnx_op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(b: Builder, n: Source, x: Value) -> Results:
    labels, transform = labels_of(n, "classlabels_int64s"), n.str("post_transform")
    dtype, forest = _in_dtype(b, x, _listed_forest(n, "class", len(labels)))
    leaves = _reached(b, x, forest, dtype)
    voted = np.unique(forest.targets)
    base = _base(n, dtype, (0, 1, 2) if len(labels) == 2 else (0, len(labels)))
    if len(labels) <= 2 and len(voted) == 1 and base.size < 2:
        score = _scores(b, leaves, replace(forest, targets=forest.targets * 0, count=1), "SUM")
        return _one_score(b, score if not base.size else b.add(score, b.constant(base)), forest, labels, transform)
    scores = _scores(b, leaves, forest, "SUM")
    if base.size:
        scores = b.add(scores, b.constant(base))
        best = b.arg_max(scores, axis=1)
    elif _all_voted(n, forest):
        best = b.arg_max(scores, axis=1)
    else:
        best = b.arg_max(b.where(_any_vote(b, leaves, forest), scores, -np.inf), axis=1)
    return chosen(b, labels, best), cast_to(b, transformed(b, scores, transform), dtypes.f32)


def _one_score(b: Builder, score: Value, forest: Forest, labels: Array, transform: str) -> Results:
    """Two classes of which the trees vote for one alone, or a single class: the score decides by its size."""
    positive = not np.any(forest.weights < 0)
    limit = 0.5 if positive and len(labels) == 2 else 0.0
    second = as_i64(b, b.lt(limit, b.reshape(score, [-1])))
    if len(labels) == 1:
        if labels.dtype == object:
            raise ValueError("a classifier with one class has no label for the samples outside of it")
        return second, cast_to(b, transformed(b, score, transform), dtypes.f32)
    if forest.targets[0] == 0:
        scores = two_scores(b, score, transform, positive)
    else:
        scores = transformed(b, b.concat(b.mul(score, 0.0), score, axis=1), transform)
    return chosen(b, labels, second), cast_to(b, scores, dtypes.f32)


def _all_voted(n: Source, forest: Forest) -> bool:
    """True if for every class there is a tree whose leaves all vote for it, so that every sample has all scores."""
    tree = np.array(n.ints("nodes_treeids"), np.int64)
    pairs = np.unique(np.stack([forest.targets, forest.voters]), axis=1)
    _, tree_of = np.unique(tree, return_inverse=True)
    leaves = np.bincount(tree_of[forest.leaves], minlength=len(forest.roots))
    votes = np.zeros((forest.count, len(forest.roots)), np.int64)
    np.add.at(votes, (pairs[0], tree_of[pairs[1]]), 1)
    return bool(np.all(np.any((votes == leaves) & (leaves > 0), axis=1)))
