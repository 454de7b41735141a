"""One random torch program for each number: its statements, what it returns, how it is called and what callers do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from assay.evidence.fuzz.drawing import NotPossible
from assay.evidence.fuzz.torch_grow import ProgramGrower, World
from assay.evidence.fuzz.torch_layers import MAKERS, Maker
from assay.evidence.fuzz.torch_program import ProgramInput, RandomProgram, Turn, pruned
from assay.evidence.fuzz.torch_templates import FAMILIES

_ATTEMPTS = 12
"""How often a statement is drawn anew until eager takes one."""

WRITES = (
    "{}.detach().add_(1)",
    "{}.detach().mul_(0)",
    "{}.data.add_(2)",
    "{}.data[..., :1] = 5",
    "{}.detach().numpy()[...] = 3",
    "{}.detach().numpy().reshape(-1)[1:2] += 1",
    "{}.detach().view(-1)[-1:].fill_(9)",
)
"""What a caller does to a tensor that it was given or that it gives."""

RENEWALS = (
    "with torch.no_grad(): model.{}.add_(1)",
    "model.{}.data.view(-1)[1::5] += 1",
    "model.{}.data = model.{}.data * 2",
    "model.{}.detach().numpy().reshape(-1)[1::7] += 1",
    "model.load_state_dict({{name: value * 2 for name, value in model.state_dict().items()}})",
)
"""How a parameter or buffer is changed in place."""

_NEW_PARAMETERS = (
    "model.{} = nn.Parameter(model.{}.detach() + 1)",
    "old = model.{}.detach().clone(); del model.{}; old.view(-1)[1:2] += 1; model.{} = nn.Parameter(old)",
    "model.{}.requires_grad_(False)",
)
_NEW_BUFFERS = ("model.{} = model.{} * 2",)


def random_program(seed: int, index: int) -> RandomProgram:
    """Program number `index` of a run: it depends on both numbers alone."""
    rng = random.Random(f"{seed}.{index}")
    grad, dynamic = rng.random() < 0.5, rng.random() < 1 / 3
    grower = ProgramGrower(rng, _sizes(rng) if dynamic else [{}], grad=grad)
    for _ in range(rng.choice((1, 1, 2, 3, 3, 4, 5, 6, 8, 10))):
        add_statement(grower)
    return pruned(_called(grower, dynamic))


def _sizes(rng: random.Random) -> list[dict[str, int]]:
    """Sets of sizes: ordinary ones first, then such with 1 and 0 and others."""
    names = ["n"] if rng.random() < 0.6 else ["n", "m"]
    first = {name: rng.randint(3, 6) for name in names}
    edges = [{name: rng.choice((edge, edge, rng.randint(2, 8))) for name in names} for edge in (1, 0, 7)]
    return [first, *rng.sample(edges, rng.choice((2, 3)))]


def add_statement(grower: ProgramGrower) -> None:
    """Add one statement that eager takes; none if a dozen attempts fail."""
    names = [*FAMILIES, *MAKERS]
    shares = [*(share for share, _ in FAMILIES.values()), *MAKERS.values()]
    for _ in range(_ATTEMPTS):
        drawn = grower.rng.choices(names, shares)[0]
        before = len(grower.leaves)
        try:
            _add(grower, drawn)
        except NotPossible:
            del grower.leaves[before:]
            continue
        return


def _add(grower: ProgramGrower, drawn: str | Maker) -> None:
    text = grower.fill(grower.pick(FAMILIES[drawn][1])) if isinstance(drawn, str) else drawn(grower)
    count, mark, rest = text.partition(": ")
    if mark and count.isdigit():
        grower.add(rest, int(count))
    else:
        grower.add(text)


# --- what comes back, and the calls


def _called(grower: ProgramGrower, dynamic: bool) -> RandomProgram:
    results = _results(grower)
    program = RandomProgram(tuple(grower.leaves), tuple(grower.steps), results, grad=grower.grad, dynamic=dynamic)
    return replace(program, turns=tuple(_turns(grower, program)))


def _results(grower: ProgramGrower) -> tuple[str, ...]:
    rng = grower.rng
    made = [name for step in grower.steps for name in step.makes]
    chosen = made[-1:] + rng.sample(made, min(len(made), rng.choice((0, 0, 1, 2))))
    leaves = [leaf.used for leaf in grower.leaves if leaf.role != "module"]
    if leaves and rng.random() < 0.25:
        chosen.append(rng.choice(leaves))
    views = grower.tensors(lambda t: t.dim() > 0)
    if views and rng.random() < 0.25:
        view = rng.choice(
            ("{}[1:]", "{}.unsqueeze(0)", "{}.reshape(-1)", "{}.detach()", "{}.expand(2, *{}.shape)", "{}.mT")
        )
        chosen.append(_valid(grower, view.replace("{}", rng.choice(views))))
    if views and rng.random() < 0.1:
        chosen.append(f"{rng.choice(views)}.shape[0]")
    if rng.random() < 0.08:
        chosen.append(rng.choice(("None", "3", "2.5", "torch.zeros(2)", "torch.arange(3)", "torch.tensor(1.0)")))
    return tuple(chosen) or ("torch.ones(2)",)


def _valid(grower: ProgramGrower, text: str) -> str:
    try:
        grower.value(text)
    except NotPossible:
        return "None"
    return text


def _turns(grower: ProgramGrower, program: RandomProgram) -> list[Turn]:
    """Each set of sizes once, then the first again; at least three calls."""
    rng = grower.rng
    worlds: list[World] = [*grower.worlds, *([grower.worlds[0]] * max(1, 3 - len(grower.worlds)))]
    turns: list[Turn] = []
    for position, world in enumerate(worlds):
        same = position > 0 and world is worlds[position - 1]
        again = same and rng.random() < 0.4
        turns.append(Turn(world.sizes, again, tuple(_after(rng, program))))
    return turns


def _after(rng: random.Random, program: RandomProgram) -> list[str]:
    """What is done between this call and the next."""
    done: list[str] = []
    if rng.random() < 0.7:
        done += [
            rng.choice(WRITES).format(f"results[{at}]") for at in range(len(program.results)) if rng.random() < 0.6
        ]
    if program.arguments and rng.random() < 0.3:
        done.append(rng.choice(WRITES).format(f"given[{rng.randrange(len(program.arguments))}]"))
    kept = [leaf for leaf in program.leaves if leaf.role in ("parameter", "buffer")]
    if kept and rng.random() < 0.7:
        done.append(_renewal(rng, rng.choice(kept)))
    return done


def _renewal(rng: random.Random, leaf: ProgramInput) -> str:
    more: Sequence[str] = _NEW_PARAMETERS if leaf.role == "parameter" else _NEW_BUFFERS
    return rng.choice((*RENEWALS, *more)).replace("{{", "{").replace("}}", "}").replace("{}", leaf.name)
