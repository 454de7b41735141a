"""A program that shows a fault, made small: results, calls, writes and statements go as long as it still shows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from assay.evidence.fuzz.torch_program import RandomProgram, Statement, Turn, names_in, pruned


def shrink(program: RandomProgram, shows: Callable[[RandomProgram], bool], seconds: float = 60.0) -> RandomProgram:
    """A program as small as can be found in the time of which `shows` still holds."""
    until = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for smaller in _smaller(program):
            if time.monotonic() > until:
                return program
            if smaller != program and shows(smaller):
                program, found = smaller, True
                break
    return program


def _smaller(program: RandomProgram) -> Iterator[RandomProgram]:
    yield from _with_fewer_results(program)
    yield from _with_fewer_calls(program)
    yield from _without_statements(program)
    if program.grad:
        yield replace(program, grad=False)
    if program.dynamic:
        yield replace(program, dynamic=False)
    for index, leaf in enumerate(program.leaves):
        plain = leaf.text.replace(".detach().requires_grad_()", "")
        leaves = (*program.leaves[:index], replace(leaf, text=plain), *program.leaves[index + 1 :])
        yield replace(program, leaves=leaves)


def _with_fewer_results(program: RandomProgram) -> Iterator[RandomProgram]:
    results = program.results
    if len(results) > 1:
        for result in results:
            yield _with_results(program, (result,))
        for index in range(len(results)):
            yield _with_results(program, results[:index] + results[index + 1 :])
    for step in reversed(program.steps[:-1]):
        for name in step.makes:
            yield _with_results(program, (name,))


def _with_results(program: RandomProgram, results: tuple[str, ...]) -> RandomProgram:
    """The program with other results; what was written to a result is written to the one that now has its name."""
    place = {program.results.index(result): at for at, result in enumerate(results) if result in program.results}

    def moved(text: str) -> str:
        return re.sub(r"results\[(\d+)\]", lambda m: f"results[{place.get(int(m[1]), 99)}]", text)

    turns = tuple(replace(turn, after=tuple(map(moved, turn.after))) for turn in program.turns)
    return pruned(replace(program, results=results, turns=turns))


def _with_fewer_calls(program: RandomProgram) -> Iterator[RandomProgram]:
    turns = program.turns
    for index in range(len(turns) if len(turns) > 1 else 0):
        yield replace(program, turns=_first_not_again(turns[:index] + turns[index + 1 :]))
    for index, turn in enumerate(turns):
        for at in range(len(turn.after)):
            quieter = replace(turn, after=turn.after[:at] + turn.after[at + 1 :])
            yield replace(program, turns=(*turns[:index], quieter, *turns[index + 1 :]))


def _first_not_again(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    return (replace(turns[0], again=False), *turns[1:])


def _without_statements(program: RandomProgram) -> Iterator[RandomProgram]:
    """The program without a statement; what it made is replaced by something that it was made from."""
    for index in reversed(range(len(program.steps))):
        step = program.steps[index]
        rest = (*program.steps[:index], *program.steps[index + 1 :])
        if not step.makes:
            yield pruned(replace(program, steps=rest))
            continue
        sources = [leaf.used for leaf in program.leaves if leaf.name in step.uses and leaf.role != "module"]
        sources += [name for other in program.steps[:index] for name in other.makes if name in step.uses]
        for source in sources:
            yield pruned(_renamed(replace(program, steps=rest), step, source))


def _renamed(program: RandomProgram, gone: Statement, source: str) -> RandomProgram:
    def changed(text: str) -> str:
        for name in gone.makes:
            text = re.sub(rf"\b{name}\b", source, text)
        return text

    steps = tuple(
        replace(step, text=changed(step.text)) if names_in(step.text).intersection(gone.makes) else step
        for step in program.steps
    )
    return replace(program, steps=steps, results=tuple(map(changed, program.results)))
