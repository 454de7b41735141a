"""`assay demo whisper`: OpenAI's weights through `torch.compile(backend="assay")`, compared with eager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from assay.cli.demo_times import DemoProgress, first_run, show_times, timed
from assay.cli.output import CommandOutput
from assay.cli.scores import likeness, show_likeness
from assay.runtime.targets import first_target

_SHOWN = 30


def show(report: CommandOutput, target: str, watch: DemoProgress) -> None:
    """Transcribe the clip with Whisper tiny.en; show where every aten op ran, and how far eager and noise are."""
    from assay.runtime.torch.graphs import recording
    from assay.zoo.moonshine import clip_path, read_speech
    from assay.zoo.whisper import RATE, load_whisper

    sound, model = read_speech(clip_path()), load_whisper()
    transcriber = _compiled(model, target, "exact")
    with recording() as graphs:
        first = timed(lambda: transcriber.transcribe(sound, watch=watch.tokens), watch, "trace")
    second = timed(lambda: transcriber.transcribe(sound, watch=watch.tokens), watch, "run")
    heard, stages = first.found, first_run(first, second)
    report.text(f"Whisper tiny.en, torch.compile on the target '{target}':")
    report.text()
    report.text(f"  “{heard.text}”")
    report.text()
    seconds = show_times(report, target, len(sound) / RATE, stages, second.seconds)
    rows = _placed(graphs, target)
    _show_ops(report, target, len(graphs), rows)
    accuracy = _against_eager(model, target, sound, heard, watch)
    show_likeness(report, "eager", accuracy)
    told = {"model": "whisper", "text": heard.text, "tokens": heard.tokens, "graphs": len(graphs)}
    report.result({**told, "seconds": seconds, "ops": rows, "eager": accuracy})


def _compiled(model: Any, target: str, mode: str) -> Any:
    """A transcriber for which three graphs are compiled: one to listen, one for the first tokens, one for all that
    follow. In `precise` mode, which is run for its numbers alone, what need not be symbolic is not."""
    import torch

    from assay.zoo.whisper import Transcriber

    def wrap(method: Any) -> Any:
        options = {"target": target, "mode": mode}
        dynamic = mode == "exact" or method == model.step
        return cast(Any, torch).compile(method, backend="assay", dynamic=dynamic, options=options)

    return Transcriber(model, wrap)


def _placed(graphs: Sequence[Any], target: str) -> list[dict[str, Any]]:
    """For each aten op: how many nodes, what became of them, where they run, and why not on the target."""
    from assay.runtime.torch.accounts import STATUSES, account

    nodes = [node for index, graph in enumerate(graphs) for node in account(index, graph, target, {})]
    rows: list[dict[str, Any]] = []
    for op, count in Counter(node.op for node in nodes).most_common():
        own = [node for node in nodes if node.op == op]
        statuses = Counter(node.status for node in own)
        targets = dict.fromkeys("torch" if node.status == "opaque" else t for node in own for t in node.targets)
        rows.append({"op": op, "nodes": count, **{status: statuses[status] for status in STATUSES}})
        rows[-1]["targets"] = list(targets)
        rows[-1]["reasons"] = list(dict.fromkeys(node.reason for node in own if node.status in ("opaque", "fallback")))
    return rows


def _show_ops(report: CommandOutput, target: str, graphs: int, rows: list[dict[str, Any]]) -> None:
    from assay.runtime.torch.accounts import STATUSES

    report.text()
    title = f"{sum(row['nodes'] for row in rows)} nodes of {len(rows)} aten ops in {graphs} graphs"
    cells = [
        (
            row["op"],
            row["nodes"],
            *(row[status] or "" for status in STATUSES),
            ", ".join(row["targets"]),
            "; ".join(row["reasons"]),
        )
        for row in rows[:_SHOWN]
    ]
    more = [(f"… {len(rows) - _SHOWN} more ops", sum(row["nodes"] for row in rows[_SHOWN:]))] if rows[_SHOWN:] else []
    report.table(
        title,
        (
            "aten op",
            ">nodes",
            *(f">{status}" for status in STATUSES),
            "ran on",
            f"why not all on {first_target(target)}",
        ),
        [*cells, *more],
    )


def _against_eager(model: Any, target: str, sound: Any, heard: Any, watch: DemoProgress) -> dict[str, Any]:
    """How near eager's scores are while both have chosen the same tokens, judged by what rounding alone does: the
    distance between the oracle's two modes."""
    from assay.zoo.whisper import Transcriber

    watch.doing("eager")
    theirs = Transcriber(model).transcribe(sound, watch=watch.tokens)
    watch.doing("the noise floor, in f64")
    precise = _compiled(model, target, "precise").transcribe(sound, watch=watch.tokens)
    pairs = enumerate(zip(heard.tokens, theirs.tokens, strict=False))
    parted = next((step for step, (mine, other) in pairs if mine != other), len(heard.tokens))
    found = likeness(heard.logits[: parted + 1], theirs.logits, precise.logits)
    same = heard.tokens == theirs.tokens
    return {**found, "text": theirs.text, "same_tokens": same, "agrees": found["agrees"] and same}
