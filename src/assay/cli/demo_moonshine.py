"""`assay demo moonshine`: an int8 ONNX model, compared with onnxruntime."""

from __future__ import annotations

from functools import partial
from typing import Any

from assay.cli.demo_times import DemoProgress, first_run, show_times, timed
from assay.cli.op_tables import placed_ops, show_ops
from assay.cli.output import CommandOutput


def show(report: CommandOutput, target: str, watch: DemoProgress) -> None:
    """Transcribe the clip with Moonshine tiny; show where every op ran, and how near onnxruntime comes."""
    from assay import InferenceSession
    from assay.zoo.moonshine import RATE, Moonshine, clip_path, read_speech

    sound = read_speech(clip_path())

    def from_files() -> tuple[Moonshine, Any]:
        made = Moonshine(partial(InferenceSession, target=target))
        return made, made.transcribe(sound, watch=watch.tokens)

    first = timed(from_files, watch, "run")
    ours, heard = first.found
    second = timed(lambda: ours.transcribe(sound, watch=watch.tokens), watch, "run")
    stages = first_run(first, second)
    sessions: dict[str, Any] = {name: getattr(ours, name) for name in ("encoder", "decoder")}
    report.text(f"Moonshine tiny (int8 ONNX) on the target '{target}':")
    report.text()
    report.text(f"  “{heard.text}”")
    report.text()
    seconds = show_times(report, target, len(sound) / RATE, stages, second.seconds)
    placed = {name: placed_ops(session.explain()) for name, session in sessions.items()}
    for name, rows in placed.items():
        show_ops(report, name, rows)
    watch.doing("onnxruntime")
    peer = _against_onnxruntime(sound, heard)
    _show_peer(report, peer)
    told = {"model": "moonshine", "text": heard.text, "tokens": heard.tokens}
    report.result({**told, "seconds": seconds, "ops": placed, "onnxruntime": peer})


def _against_onnxruntime(sound: Any, heard: Any) -> dict[str, Any]:
    """onnxruntime on the same clip: its text, and how near the scores are while both have chosen the same tokens."""
    from assay.errors import NotFound
    from assay.evidence.compare.arrays import signal
    from assay.evidence.peers import open_onnxruntime, peer_version
    from assay.zoo.moonshine import Moonshine

    try:
        version = peer_version("onnxruntime")
    except NotFound as missing:
        return {"reason": missing.message}
    theirs = Moonshine(open_onnxruntime).transcribe(sound)
    pairs = list(zip(heard.tokens[1:], theirs.tokens[1:], strict=False))
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    likeness = [signal(a, b) for a, b in zip(heard.logits[: same + 1], theirs.logits[: same + 1], strict=False)]
    return {
        "version": version,
        "text": theirs.text,
        "tokens": theirs.tokens,
        "same_tokens": same,
        "lowest_pcc": min((each.pcc for each in likeness if each.pcc is not None), default=None),
        "lowest_snr": min((each.snr for each in likeness if each.snr is not None), default=None),
    }


def _show_peer(report: CommandOutput, peer: dict[str, Any]) -> None:
    report.text()
    if "reason" in peer:
        report.text(f"not compared with onnxruntime: {peer['reason']}")
        return
    report.text(f"onnxruntime {peer['version']}:")
    report.text()
    report.text(f"  “{peer['text']}”")
    report.text()
    report.text(f"{peer['same_tokens']} tokens chosen alike from the start;")
    report.text(f"scores up to there: PCC at least {peer['lowest_pcc']:.6f}, SNR at least {peer['lowest_snr']:.1f} dB")
