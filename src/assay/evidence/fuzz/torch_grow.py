"""Random torch programs, valid by construction: each statement is run by eager before it becomes part of a program.

A program lives in several worlds at once, one for each set of sizes it will be called with. A statement is taken if
eager runs it in all of them; what eager refuses is dropped, or now and then kept on purpose in a world where it fails.
"""

from __future__ import annotations

import math
import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import torch

from assay.evidence.fuzz.drawing import NotPossible
from assay.evidence.fuzz.torch_plain import PLAIN
from assay.evidence.fuzz.torch_program import PREAMBLE, ProgramInput, Role, Size, Statement, names_in

_torch = cast(Any, torch)

LARGEST = 3000
"""Results of more elements are not taken."""
LOUDEST = 1e6
"""Nor are those with larger numbers: rounding would decide everything that follows."""
STATIC = (1, 2, 3, 4, 5, 8, 9)
_ROLES: tuple[Role, ...] = ("parameter", "buffer", "argument")

_FIELD = re.compile(r"\{([^{}]*)\}")


@dataclass
class World:
    """The program as eager runs it for one set of sizes; `alive` until a statement that was kept failed there."""

    sizes: dict[str, int]
    names: dict[str, Any] = field(default_factory=dict[str, Any])
    alive: bool = True


def kind_of(value: Any) -> str:
    """The kind of a tensor: f, i, b, or empty for anything else."""
    if not isinstance(value, torch.Tensor) or value.is_complex() or value.layout is not torch.strided:
        return ""
    if value.is_floating_point():
        return "f"
    return "b" if value.dtype is torch.bool else "i"


class ProgramGrower:
    """A program that grows. `worlds[0]` is the one whose shapes decide what is drawn."""

    def __init__(self, rng: random.Random, sizes: Sequence[dict[str, int]], *, grad: bool) -> None:
        self.rng, self.grad = rng, grad
        self.worlds = [World(dict(each)) for each in sizes]
        self.leaves: list[ProgramInput] = []
        self.steps: list[Statement] = []
        self.anchor, self.axis = "", 0
        self._count = 0
        self._rebuild()

    # --- what there is

    def value(self, text: str) -> Any:
        """What an expression is in the first world."""
        return self._evaluated(text, self.worlds[0])

    def shape(self, text: str) -> tuple[int, ...]:
        """The shape of a tensor expression in the first world."""
        return tuple(self.value(text).shape)

    def tensors(self, wanted: Callable[[torch.Tensor], bool] = lambda tensor: True) -> list[str]:
        """The tensors so far that fit, as `forward` names them."""
        named = [leaf.used for leaf in self.leaves if leaf.role != "module"]
        named += [name for step in self.steps for name in step.makes]
        values = [(name, self.value(name)) for name in named]
        return [name for name, value in values if kind_of(value) and wanted(value)]

    def size(self, text: str, axis: int) -> Size:
        """A size of a tensor: a number, or the name of the size that it is in all worlds."""
        shapes = [tuple(self._evaluated(text, world).shape) for world in self._alive()]
        if any(not -len(shape) <= axis < len(shape) for shape in shapes):
            raise NotPossible(f"there is no axis {axis}")
        found = [shape[axis] for shape in shapes]
        for name in self.worlds[0].sizes:
            if found == [world.sizes[name] for world in self._alive()]:
                return name
        if len(set(found)) == 1:
            return found[0]
        raise NotPossible("the size depends on sizes in a way of its own")

    def sizes(self, text: str) -> list[Size]:
        """All sizes of a tensor."""
        return [self.size(text, axis) for axis in range(len(self.shape(text)))]

    # --- drawing

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options; NotPossible if there are none."""
        if not options:
            raise NotPossible("nothing fits")
        return self.rng.choice(options)

    def chance(self, share: float) -> bool:
        """True in that share of cases."""
        return self.rng.random() < share

    def draw_sizes(self, rank: int) -> list[Size]:
        """Sizes for a new tensor."""
        named = list(self.worlds[0].sizes)
        return [self.pick(named) if named and self.chance(0.5) else self.pick(STATIC) for _ in range(rank)]

    def tensor(self, kind: str = "t", low: int = 0, high: int = 4) -> str:
        """A tensor of a kind and of a rank within bounds: one that is there, one brought to that, or a new one."""
        wanted = self.pick("ffffiib") if kind == "t" else kind
        fitting = self.tensors(lambda t: kind_of(t) == wanted and low <= t.dim() <= high)
        if fitting and self.chance(0.8):
            return self.rng.choice(fitting[-4:] if self.chance(0.6) else fitting)
        others = self.tensors(lambda t: t.dim() > 0)
        if others and self.chance(0.3):
            return self._adapted(self.rng.choice(others), wanted, low, high)
        return self.leaf(self.draw_sizes(self.rng.randint(low, high)), wanted)

    def _adapted(self, text: str, kind: str, low: int, high: int) -> str:
        """A tensor expression with another kind and rank."""
        has = kind_of(self.value(text))
        if has != kind:
            text = self.pick(_CONVERTED[has + kind]).format(text)
        rank = self.value(text).dim()
        while not low <= rank <= high:
            rows = _RAISED if rank < low else _REDUCED
            text = self.pick(rows).format(text, self.rng.randrange(max(rank, 1)))
            rank = self.value(text).dim()
        return text

    def leaf(
        self,
        sizes: Sequence[Size],
        kind: str = "f",
        *,
        low: Any = -5,
        high: Any = 5,
        role: Role | None = None,
        finite: bool = False,
    ) -> str:
        """A new tensor; of whole numbers from `low` to `high` - 1 if it is to hold integers."""
        static = all(isinstance(size, int) for size in (*sizes, low, high))
        drawn: Role = role or (self.rng.choice(_ROLES) if static and self.chance(0.5) else "argument")
        drawn = "buffer" if drawn == "parameter" and kind != "f" else drawn
        text = self._content(sizes, kind, low, high)
        text = text.replace("odd(", "torch.randn(") if finite else text
        if drawn == "argument" and kind == "f" and self.grad and self.chance(0.6):
            text += ".detach().requires_grad_()"
        return self.add_leaf(drawn, text)

    def _content(self, sizes: Sequence[Size], kind: str, low: Any, high: Any) -> str:
        if kind == "b":
            return self._laid_out(lambda shape: f"(torch.randn({shape}) > 0)", sizes)
        if kind == "i":
            cast_ = self.pick(("", "", "", ".int()", ".short()", ".to(torch.uint8)")) if low == -5 else ""
            low = 0 if "uint8" in cast_ else low
            return self._laid_out(lambda shape: f"ints({low}, {high}, {shape}){cast_}", sizes)
        make = self.rng.choices(_FLOATS, _FLOAT_SHARES)[0]
        return self._laid_out(lambda shape: make.format(shape), sizes)

    def _laid_out(self, make: Callable[[str], str], sizes: Sequence[Size]) -> str:
        """A tensor of these sizes, now and then with strides of its own."""
        rank, way = len(sizes), self.rng.random()
        if not rank:
            return make("()")
        if rank > 1 and way < 0.1:
            order = self.rng.sample(range(rank), rank)
            stored: list[Size] = [sizes[axis] for axis in sorted(range(rank), key=lambda axis: order[axis])]
            return f"{make(_listed(stored))}.permute({_listed(order)})"
        if way < 0.16:
            return f"{make(_listed([*sizes[:-1], f'2 * {sizes[-1]}']))}[..., ::2]"
        if way < 0.2:
            return f"{make(_listed([f'{sizes[0]} + 2', *sizes[1:]]))}[2:]"
        if rank > 1 and way < 0.22 and not isinstance(sizes[0], str):
            return f"{make(_listed([1, *sizes[1:]]))}.expand({_listed(sizes)})"
        return make(_listed(sizes))

    # --- adding

    def add_leaf(self, role: Role, text: str) -> str:
        """A new leaf, as `forward` names it."""
        prefix = {"argument": "x", "parameter": "p", "buffer": "b", "module": "m"}[role]
        leaf = ProgramInput(f"{prefix}{self._number()}", role, text)
        self.leaves.append(leaf)
        for index, world in enumerate(self.worlds):
            self._make_leaf(leaf, world, index)
        return leaf.used

    def add(self, text: str, results: int = 1) -> None:
        """Take a statement if eager runs it; NotPossible if not. `results` is how many names it binds, 0 for none."""
        makes = tuple(f"v{self._number()}" for _ in range(results))
        step = Statement(f"{', '.join(makes)} = {text}" if makes else text, makes)
        failed = [world for world in self._alive() if not self._runs(step, world)]
        kept_failing = (
            failed and failed[-1] is not self.worlds[0] and self.worlds[0] not in failed and self.chance(0.03)
        )
        if (failed and not kept_failing) or not self._is_good(step):
            self._rebuild()
            raise NotPossible("eager refuses it")
        for world in failed:
            world.alive = False
        self.steps.append(step)

    def _alive(self) -> list[World]:
        return [world for world in self.worlds if world.alive]

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    def _make_leaf(self, leaf: ProgramInput, world: World, index: int) -> None:
        _torch.manual_seed(1000 * index + int(leaf.name[1:]))
        value = self._evaluated(leaf.text, world)
        if leaf.role == "parameter":
            value = torch.nn.Parameter(value)
        if leaf.role == "argument":
            world.names[leaf.name] = value
        else:
            setattr(world.names["self"], leaf.name, value)

    def _rebuild(self) -> None:
        """Every world from the beginning."""
        for index, world in enumerate(self.worlds):
            world.names = {**_shared_names(), "self": SimpleNamespace(training=True), **world.sizes}
            for leaf in self.leaves:
                self._make_leaf(leaf, world, index)
            for step in self.steps:
                if world.alive and not self._runs(step, world):
                    world.alive = False

    def _evaluated(self, text: str, world: World) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return eval(text, world.names)
            except Exception as error:
                raise NotPossible(str(error)) from error

    def _runs(self, step: Statement, world: World) -> bool:
        _torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(step.text, world.names)
            except Exception:
                return False
        return True

    def _is_good(self, step: Statement) -> bool:
        """Whether all that a statement made or wrote is small, quiet and, where asked for, can be differentiated."""
        names = step.makes or tuple(names_in(step.text))
        for world in self._alive():
            found = [world.names[name] for name in names if name in world.names]
            tensors = [value for value in found if isinstance(value, torch.Tensor)]
            if any(value.numel() > LARGEST or _is_loud(value) for value in tensors):
                return False
            if step.makes and len(tensors) < len(found):
                return False
        return bool(step.makes) or not self.grad or self._differentiable(self.worlds[0])

    def _differentiable(self, world: World) -> bool:
        """Whether a write has left alone what gradients need."""
        values = [world.names[name] for step in self.steps for name in step.makes]
        tops = [v for v in values if kind_of(v) == "f" and v.requires_grad]
        try:
            if tops:
                torch.autograd.backward(tops, [torch.ones_like(top) for top in tops], retain_graph=True)
        except RuntimeError:
            return False
        return True

    # --- templates

    def fill(self, template: str) -> str:
        """A template with its fields drawn; what they mean is in `FIELDS`."""
        self.anchor, self.axis = "", 0
        return _FIELD.sub(lambda match: self._field(match.group(1)), template)

    def _field(self, name: str) -> str:
        if "|" in name:
            return self.rng.choice(name.split("|"))
        if ".." in name:
            low, high = name.split("..")
            return str(self.rng.randint(int(low), int(high)))
        if re.fullmatch(r"[fibt](\d\+?|\d-\d)?", name):
            text = self.tensor(name[0], *_ranks(name[1:]))
            self.anchor = self.anchor or text
            return text
        return FIELDS[name](self)


def _ranks(text: str) -> tuple[int, int]:
    if not text:
        return 0, 4
    if "-" in text:
        return int(text[0]), int(text[2])
    return int(text[0]), 4 if text.endswith("+") else int(text[0])


def _listed(parts: Sequence[Any]) -> str:
    return ", ".join(map(str, parts))


def _is_loud(value: torch.Tensor) -> bool:
    if kind_of(value) != "f" or not value.numel():
        return False
    plain = value.detach().double()
    finite = plain[plain.isfinite()]
    return bool(finite.numel()) and float(finite.abs().max()) > LOUDEST


_SHARED: dict[str, Any] = {}


def _shared_names() -> dict[str, Any]:
    if not _SHARED:
        exec(PREAMBLE, _SHARED)
        _SHARED.update(PLAIN)
    return dict(_SHARED)


_FLOATS = (
    "torch.randn({})",
    "torch.rand({})",
    "torch.randn({}).mul(3).round()",
    "torch.randn({}, dtype=torch.float64)",
    "torch.randn({}, dtype=torch.bfloat16)",
    "torch.randn({}, dtype=torch.float16)",
    "odd({})",
    "torch.zeros({})",
)
_FLOAT_SHARES = (60, 10, 10, 6, 4, 3, 3, 4)

_CONVERTED = {
    "fi": ("{}.nan_to_num(0.0, 9.0, -9.0).clamp(-9, 9).long()",),
    "fb": ("({} > 0)", "({} != 0)"),
    "if": ("{}.float()", "{}.to(torch.float32)", "{}.double()"),
    "ib": ("({} > 1)", "{}.bool()"),
    "bf": ("{}.float()",),
    "bi": ("{}.long()", "{}.int()"),
}
_RAISED = ("{0}.unsqueeze({1})", "{0}[None]", "{0}.unsqueeze(-1)")
_REDUCED = ("{0}.flatten(0, 1)", "{0}.sum({1})", "{0}.select({1}, -1)", "{0}.flatten(-2)")


# --- the fields of templates


def _axis(g: ProgramGrower) -> str:
    rank = g.value(g.anchor).dim()
    g.axis = g.rng.randrange(max(rank, 1))
    return str(g.axis - rank if rank and g.chance(0.4) else g.axis)


def _other_axis(g: ProgramGrower) -> str:
    rank = g.value(g.anchor).dim()
    return str(g.pick([axis for axis in range(rank) if axis != g.axis]))


def _axes(g: ProgramGrower) -> str:
    rank = g.value(g.anchor).dim()
    return f"({_listed(g.rng.sample(range(rank), g.rng.randint(1, max(rank, 1))))},)" if rank else "()"


def _order(g: ProgramGrower) -> str:
    rank = g.value(g.anchor).dim()
    return _listed(g.rng.sample(range(rank), rank)) or "()"


def _like(g: ProgramGrower) -> str:
    """A number, or a tensor of the anchor's kind that broadcasts with it."""
    anchor = g.value(g.anchor)
    if g.chance(0.15):
        return _number(g) if kind_of(anchor) == "f" else str(g.pick((1, 2, 3)))
    fitting = g.tensors(lambda t: kind_of(t) == kind_of(anchor) and _broadcasts(t.shape, anchor.shape))
    if fitting and g.chance(0.7):
        return g.pick(fitting)
    sizes = [1 if g.chance(0.25) else size for size in g.sizes(g.anchor)]
    return g.leaf(sizes[g.rng.choice((0, 0, 1)) :] if sizes else sizes, kind_of(anchor))


def _broadcasts(first: Sequence[int], second: Sequence[int]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(first), reversed(second), strict=False))


def _same(g: ProgramGrower) -> str:
    """A tensor of the anchor's shape and dtype."""
    anchor = g.value(g.anchor)
    fitting = g.tensors(lambda t: t.dtype is anchor.dtype and t.shape == anchor.shape)
    if fitting and g.chance(0.7):
        return g.pick(fitting)
    text = g.leaf(g.sizes(g.anchor), kind_of(anchor))
    return text if g.value(text).dtype is anchor.dtype else f"{text}.to({anchor.dtype})"


def _mask(g: ProgramGrower) -> str:
    return g.pick((f"({g.anchor} > 0)", f"({g.anchor} == {g.anchor})", "")) or g.leaf(g.sizes(g.anchor), "b")


def _variable(g: ProgramGrower) -> str:
    """A tensor that is written to: mostly of floats."""
    kind = g.pick("fffib")
    g.anchor = g.pick(g.tensors(lambda t: kind_of(t) == kind))
    return g.anchor


def _parameter(g: ProgramGrower) -> str:
    g.anchor = g.pick([leaf.used for leaf in g.leaves if leaf.role == "parameter"])
    return g.anchor


def _number(g: ProgramGrower) -> str:
    return str(g.pick((0.5, -1.0, 2.0, 0.0, 1e-3, 3.0, -0.25)))


def _index(g: ProgramGrower) -> str:
    """A few places along the anchor's axis, some counted from its end."""
    size = g.size(g.anchor, g.axis)
    return g.leaf([g.pick((1, 3, 4))] if g.chance(0.7) else [2, 2], "i", low=g.pick((0, f"-{size}")), high=size)


def _plain_index(g: ProgramGrower) -> str:
    return g.leaf([g.pick((1, 3, 4))], "i", low=0, high=g.size(g.anchor, g.axis))


def _index_like(g: ProgramGrower) -> str:
    """Places along the anchor's axis for each element of a tensor like the anchor."""
    sizes = g.sizes(g.anchor)
    if sizes and g.chance(0.4):
        sizes[g.axis] = g.pick((1, 2, 3))
    return g.leaf(sizes, "i", low=0, high=g.size(g.anchor, g.axis) if sizes else 1)


def _slices(g: ProgramGrower) -> str:
    rank = g.value(g.anchor).dim()
    rows = ("1:", ":-1", "::2", ":2", "-2:", ":", "0", "-1", "None", "..., None", "1:1", ":100")
    return ", ".join(g.rng.choice(rows) for _ in range(g.rng.randint(1, max(rank, 1)))).replace("..., None, ...", "...")


def _shape(g: ProgramGrower) -> str:
    """A shape of as many elements as the anchor's."""
    shape = g.shape(g.anchor)
    flat = math.prod(shape)
    if not shape or g.chance(0.3):
        return "-1"
    if g.chance(0.5):
        at = g.rng.randrange(len(shape))
        parts = [f"{g.anchor}.shape[{axis}]" for axis in range(len(shape))]
        return _listed([*parts[:at], "-1", *parts[at + 1 :]]) if g.chance(0.5) else f"{parts[at]}, -1"
    divisor = g.pick([each for each in (1, 2, 3, 4, 6) if not flat % each])
    return f"{divisor}, -1" if g.chance(0.5) else f"-1, {divisor}"


def _expanded(g: ProgramGrower) -> str:
    """A shape that the anchor expands to."""
    sizes = [g.pick((2, 3)) if size == 1 else "-1" for size in g.shape(g.anchor)]
    return _listed([*([g.pick((1, 2, 3))] if g.chance(0.6) or not sizes else []), *sizes])


def _dtype(g: ProgramGrower) -> str:
    kinds = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
    return f"torch.{g.rng.choices(kinds, (4, 3, 1, 1, 3, 2, 1, 1, 2))[0]}"


def _length(g: ProgramGrower) -> str:
    """A size as source: a number, or a size of the anchor."""
    shape = g.shape(g.anchor)
    return f"{g.anchor}.shape[{g.rng.randrange(len(shape))}]" if shape and g.chance(0.6) else str(g.pick((0, 1, 3, 5)))


def _strides(g: ProgramGrower) -> str:
    """Shape, strides and offset within the anchor's memory."""
    total = g.value(g.anchor).untyped_storage().nbytes() // max(g.value(g.anchor).element_size(), 1)
    rank = g.rng.randint(1, 3)
    shape, strides = [g.rng.randint(1, 3) for _ in range(rank)], [g.rng.randint(0, 3) for _ in range(rank)]
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if reach >= total:
        raise NotPossible("the memory is too small")
    offset = g.rng.randint(0, min(total - reach - 1, 4))
    return f"({_listed(shape)},), ({_listed(strides)},)" + (f", {offset}" if offset or g.chance(0.5) else "")


FIELDS: dict[str, Callable[[ProgramGrower], str]] = {
    "d": _axis,
    "d2": _other_axis,
    "ds": _axes,
    "order": _order,
    "like": _like,
    "same": _same,
    "mask": _mask,
    "x": _number,
    "v": _variable,
    "p": _parameter,
    "index": _index,
    "places": _plain_index,
    "indices": _index_like,
    "s": _slices,
    "shape": _shape,
    "expanded": _expanded,
    "dtype": _dtype,
    "length": _length,
    "strides": _strides,
    "anchor": lambda g: g.anchor,
    "size": lambda g: str(g.pick((f"{g.anchor}.shape[{g.axis}]", g.shape(g.anchor)[g.axis]))),
}
"""How each field of a template is drawn: `d` an axis of the first tensor, `like` what broadcasts with it, and so on."""
