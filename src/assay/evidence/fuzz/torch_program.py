"""A random torch program as data: tensors, statements, results, calls and what happens between them; and its source."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Literal, TypeAlias

Size: TypeAlias = int | str
"""A number, or the name of one that differs from call to call."""
Role: TypeAlias = Literal["argument", "parameter", "buffer", "module"]

PREAMBLE = '''\
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import map as map_, scan, while_loop
from torch.utils.checkpoint import checkpoint

cond = torch.cond


def ints(low, high, *shape):
    """Whole numbers from low to high - 1; zeros where there are none."""
    return torch.randint(low, high, shape) if high > low else torch.zeros(shape, dtype=torch.int64)


def odd(*shape):
    """Zeros of both signs, infinities and NaN among ordinary numbers."""
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0])
    return torch.where(torch.rand(shape) < 0.2, special[torch.randint(0, 6, shape)], torch.randn(shape))


def stepping_pool(x, dilation, stride):
    """A max pool of pairs of elements; both may lie in the padding."""
    return getattr(F, f"max_pool{x.dim() - 2}d")(x, 2, stride, padding=1, dilation=dilation)
'''

_NAME = re.compile(r"\b[xvpbm]\d+\b")


def names_in(text: str) -> set[str]:
    """The tensors, modules and results that a piece of source mentions."""
    return set(_NAME.findall(text))


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """Something that a program is given: `text` makes it, in terms of the sizes of a call where it is an argument."""

    name: str
    role: Role
    text: str

    @property
    def used(self) -> str:
        """How a statement of `forward` names it."""
        return self.name if self.role == "argument" else f"self.{self.name}"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of `forward`; `makes` are the names that it binds, none if it only writes to something."""

    text: str
    makes: tuple[str, ...] = ()

    @property
    def uses(self) -> set[str]:
        """What it mentions beside what it makes."""
        return names_in(self.text).difference(self.makes)


@dataclass(frozen=True, slots=True)
class Turn:
    """One call: its sizes, whether it gets the arguments of the call before once more, and what is done afterwards."""

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    again: bool = False
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """A program and how it is called. `results` are expressions over the names that statements make."""

    leaves: tuple[ProgramInput, ...] = ()
    steps: tuple[Statement, ...] = ()
    results: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = (Turn(),)
    grad: bool = False
    dynamic: bool = False

    @property
    def arguments(self) -> list[ProgramInput]:
        """What `forward` is called with."""
        return [leaf for leaf in self.leaves if leaf.role == "argument"]

    def source(self) -> str:
        """The program as Python source: `Model`, `arguments` and the statements between calls."""
        return "\n".join([PREAMBLE, "", *self._model(), "", "", *self._given()])

    def _model(self) -> Iterator[str]:
        yield from ("class Model(nn.Module):", "    def __init__(self):", "        super().__init__()")
        for leaf in self.leaves:
            if leaf.role == "parameter":
                yield f"        self.{leaf.name} = nn.Parameter({leaf.text})"
            elif leaf.role == "buffer":
                yield f'        self.register_buffer("{leaf.name}", {leaf.text})'
            elif leaf.role == "module":
                yield f"        self.{leaf.name} = {leaf.text}"
        yield ""
        yield f"    def forward({', '.join(['self', *(leaf.name for leaf in self.arguments)])}):"
        yield from (f"        {line}" for step in self.steps for line in step.text.splitlines())
        yield f"        return ({''.join(f'{result}, ' for result in self.results)})"

    def _given(self) -> Iterator[str]:
        names = sorted({name for turn in self.turns for name in turn.sizes})
        yield f"def arguments({', '.join(names)}):"
        yield from (f"    {leaf.name} = {leaf.text}" for leaf in self.arguments)
        yield f"    return [{', '.join(leaf.name for leaf in self.arguments)}]"


def pruned(program: RandomProgram) -> RandomProgram:
    """The program without results that nobody uses and leaves that nothing mentions; writes stay where they matter."""
    needed = {name for result in program.results for name in names_in(result)}
    kept: list[Statement] = []
    for step in reversed(program.steps):
        writes = not step.makes and bool(step.uses & (needed | _lasting(program)))
        if writes or needed.intersection(step.makes):
            kept.insert(0, step)
            needed |= step.uses
    leaves = tuple(leaf for leaf in program.leaves if leaf.name in needed | _lent(program.leaves, needed))
    present = {leaf.name for leaf in leaves}
    turns = tuple(
        replace(turn, after=tuple(text for text in turn.after if _lasts(text, present, len(program.results))))
        for turn in program.turns
    )
    return replace(program, leaves=leaves, steps=tuple(kept), turns=turns)


def _lasting(program: RandomProgram) -> set[str]:
    """What keeps a write beyond the call."""
    return {leaf.name for leaf in program.leaves}


def _lent(leaves: Sequence[ProgramInput], needed: set[str]) -> set[str]:
    """Arguments that others are made of."""
    found: set[str] = set()
    for leaf in reversed(leaves):
        if leaf.name in needed or leaf.name in found:
            found |= names_in(leaf.text)
    return found


_RESULT = re.compile(r"results\[(\d+)\]")


def _lasts(text: str, present: set[str], results: int) -> bool:
    """Whether a statement between calls still has what it writes to."""
    return names_in(text) <= present and all(int(number) < results for number in _RESULT.findall(text))


def namespace(program: RandomProgram, **replaced: Any) -> dict[str, Any]:
    """What the source defines, with some of its names bound to something else; a module of its own, as dynamo looks
    functions up in theirs."""
    module = sys.modules["program"] = ModuleType("program")
    found = vars(module)
    exec(compile(program.source(), "<program>", "exec"), found)
    found.update(replaced)
    return found


def reproducer(program: RandomProgram, target: str, message: str) -> str:
    """A script that shows what eager and Assay make of the program, call by call."""
    heading = "\n".join(f"# {line}" for line in message.splitlines())
    calls = "".join(f"    {(dict(turn.sizes), turn.again, list(turn.after))!r},\n" for turn in program.turns)
    return f"{heading}\n{program.source()}\n\nCALLS = [\n{calls}]\n\n{_PLAY}\n{_call(program, target)}"


_PLAY = '''
def play(grad, backend=None, **options):
    """What the caller sees of every call: results, arguments and gradients, with their strides."""
    torch.manual_seed(0)
    model = Model()
    function = torch.compile(model, backend=backend, **options) if backend else model
    seen, given = [], []
    for number, (sizes, again, after) in enumerate(CALLS):
        torch.manual_seed(100 + number)
        given = given if again else arguments(**sizes)
        torch.manual_seed(1)
        with torch.set_grad_enabled(grad):
            results = function(*given)
        tops = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
        if tops:
            torch.autograd.backward(tops, [torch.ones_like(top) for top in tops])
        leaves = [each for each in (*given, *model.parameters()) if each.is_leaf]
        seen.append([*map(told, results), *map(told, given), *(told(each.grad) for each in leaves)])
        for statement in after:
            exec(statement)
    return seen


def told(value):
    return f"{value} with strides {value.stride()}" if isinstance(value, torch.Tensor) else str(value)

'''


def _call(program: RandomProgram, target: str) -> str:
    options = f'options={{"target": "{target}", "cache": False}}, dynamic={True if program.dynamic else None}'
    return f"""
for number, calls in enumerate(zip(play({program.grad}), play({program.grad}, "assay", {options}))):
    for eager, compiled in zip(*calls):
        if eager != compiled:
            print(f"call {{number}}", eager, compiled, sep="\\n")
"""
