"""Chat templates: how a conversation becomes a text. A template is a program that came with a model.

It is run by Jinja in its immutable sandbox, in a process of its own with little time and memory: whatever a template
does, this process gets a text of bounded length or a typed error.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from assay.errors import BadArgument, ImportFailed, LimitExceeded
from assay.needs import require
from assay.processes import Send, Worker, WorkerDied, WorkerLimits, WorkerRaised

SECONDS, MEMORY, LONGEST = 5.0, 1 << 30, 1 << 22
"""What a template may take: seconds, bytes of address space, and characters of what it makes."""


class ChatTemplate:
    """A template with the names of special tokens that it may use."""

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        require("jinja2")
        if len(text) > LONGEST:
            raise LimitExceeded(f"the chat template has {len(text)} characters, {LONGEST} are allowed")
        limits = WorkerLimits(seconds=SECONDS, address_space=MEMORY, resident=MEMORY)
        self._worker = Worker(service, text, limits=limits)
        self._names = dict(names)

    def render(self, messages: Sequence[Mapping[str, Any]], reply: bool = True, **more: Any) -> str:
        """The text of a conversation; with `reply`, what the model's answer begins with comes last.

        Messages are tables with `role` and `content`. ImportFailed if the template does not work or takes too much,
        BadArgument if it refuses the messages itself."""
        request = {"messages": [dict(each) for each in messages], "add_generation_prompt": reply}
        try:
            return self._worker.ask({**self._names, **more, **request}, what="the chat template")
        except WorkerDied as error:
            message = (
                f"the chat template took more than {SECONDS:g} seconds or {MEMORY >> 20} MiB, or ended its process"
            )
            raise ImportFailed(message, hint="use another template, or none") from error
        except WorkerRaised as error:
            raise _typed(error) from None

    def close(self) -> None:
        """End the process of the template."""
        self._worker.close()


def _typed(error: WorkerRaised) -> BadArgument | ImportFailed:
    if error.kind.endswith("MessagesRefused"):
        return BadArgument(f"the chat template refuses these messages: {error.text}")
    what = f"the chat template does not work: {error.reason}"
    return ImportFailed(what, hint="the model's template is damaged or was written for more than it is given")


class MessagesRefused(Exception):
    """What a template says of messages that it does not take."""


def service(text: str) -> Any:
    """What runs in the process: renders the template for the variables that it is asked with."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> NoReturn:
        raise MessagesRefused(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    known: Any = environment
    known.filters["tojson"] = _as_json
    known.globals |= {"raise_exception": refuse, "strftime_now": _now}
    template: list[Any] = []

    def render(variables: Any, send: Send) -> str:
        if not template:
            template.append(environment.from_string(text))
        made: list[str] = []
        length = 0
        for part in template[0].generate(**variables):
            length += len(part)
            if length > LONGEST:
                raise ValueError(f"it makes more than {LONGEST} characters")
            made.append(part)
        return "".join(made)

    return render


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _as_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **more: Any) -> str:
    """JSON as templates expect it: as it is, nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)
