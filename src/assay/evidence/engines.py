"""Engines: whoever can run a model, a target of Assay in some configuration or a peer, named by one word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.errors import NotFound, hint_for
from assay.evidence.peers import ModelSource, Ready, load_peer, peer_names, peer_version
from assay.ir.graph import Graph
from assay.runtime.load import load
from assay.runtime.session import Session, SessionOptions
from assay.runtime.targets import is_modelled, make_chain, target_names

_WORDS: dict[str, dict[str, Any]] = {
    "exact": {"mode": "exact"},
    "precise": {"mode": "precise"},
    "bf16": {"mode": "bf16"},
    "f16": {"mode": "f16"},
    "decomposed": {"decomposed": True},
    "unoptimized": {"optimize": False},
}
"""What may follow a target's name after a colon, beside passes that are switched off."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Somebody who runs models; `options` is None for a peer."""

    name: str
    options: SessionOptions | None

    @property
    def carries_f64(self) -> bool:
        """True if intermediate floats come in f64, whatever the model declares."""
        return self.options is not None and self.options.mode == "precise"

    @property
    def rounds_to(self) -> str:
        """The dtype that a target rounds floats to, if that is narrower than what models state; else empty."""
        if self.options is None:
            return ""
        first = make_chain(self.options.target, self.options.mode, self.options.limits)[0]
        return "" if first.traits.rounds_to is None else first.traits.rounds_to.name

    @property
    def is_modelled(self) -> bool:
        """Whether values come from a model of a device that is not here."""
        return self.options is not None and is_modelled(self.options.target)

    def version(self) -> str:
        """The version behind this engine; NotFound if a peer is not installed."""
        if self.options is None:
            return peer_version(self.name)
        from assay import __version__

        return __version__

    def load(self, model: ModelSource) -> Ready:
        """`model` made ready to run; a peer's errors are its own."""
        if self.options is None:
            return load_peer(self.name, model)
        return ModelOnTarget(model, self.options)


class ModelOnTarget:
    """A model in a session of Assay; bytes are ONNX."""

    def __init__(self, model: ModelSource | Graph, options: SessionOptions) -> None:
        if isinstance(model, Graph):
            self.session = Session(model, options)
        elif isinstance(model, bytes):
            from assay.frontends.onnx import load as load_onnx

            self.session = Session(load_onnx(model, options.limits), options)
        else:
            self.session = load(model, options)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name."""
        return self.session.run(feeds)

    def fallbacks(self) -> tuple[str, ...]:
        """The nodes with floats that the target leaves to the oracle, each as its op and the reason."""
        return fallbacks(self.session)

    def run_all(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Every value by its name in the model, those in bodies and functions too."""
        return self.session.observe(feeds)


def fallbacks(session: Session) -> tuple[str, ...]:
    """The nodes with floats that the target of a session leaves to the oracle, each as its op and the reason."""
    left = [node for node in session.explain().nodes if node.floats and node.target != session.target.name]
    return tuple(f"{node.op}: {node.reason}" for node in left)


def engine(spec: str) -> Engine:
    """The engine that `spec` names: a peer, or a target or chain with words after it, as in `cpu,reference:precise`.

    A word with a minus switches a pass off: `cpu:-fold`.
    """
    name, *words = spec.split(":")
    if name in peer_names() and not words:
        return Engine(name, None)
    _check_chain(name)
    off = [word.removeprefix("-") for word in words if word.startswith("-")]
    options = SessionOptions(target=name, disabled_passes=tuple(off))
    for word in words:
        if word not in _WORDS and not word.startswith("-"):
            hint = f"{hint_for(word, _WORDS)}; -{word} switches a pass off"
            raise NotFound(f"'{spec}': there is no configuration '{word}'", hint=hint)
        options = replace(options, **_WORDS.get(word, {}))
    return Engine(spec, options)


def _check_chain(chain: str) -> None:
    """NotFound if a target of the chain does not exist."""
    targets, peers = target_names(), peer_names()
    for name in map(str.strip, chain.split(",")):
        if name in peers:
            hint = f"name it alone; the targets are {', '.join(targets)}"
            raise NotFound(f"'{name}' is a peer: it is part of no chain and takes no words", hint=hint)
        if name not in targets:
            raise NotFound(f"there is no target or peer '{name}'", hint=hint_for(name, [*targets, *peers]))
