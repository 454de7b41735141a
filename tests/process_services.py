"""Services for the tests of worker processes. Also run by other Pythons, so the standard library is all it needs."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def echo(*arguments: Any) -> Callable[..., Any]:
    """Replies with the request."""
    return lambda request, send: request


def begun(*arguments: Any) -> Callable[..., Any]:
    """Replies with what it was started with and who it is."""
    return lambda request, send: {"arguments": arguments, "pid": os.getpid(), "version": list(sys.version_info[:2])}


def deadly() -> Callable[..., Any]:
    """Does what the request says."""
    return lambda request, send: _DEEDS[request[0]](send, *request[1:])


def broken() -> Callable[..., Any]:
    """Cannot be set up."""
    raise LookupError("no such device")


def dead() -> Callable[..., Any]:
    """Ends while it is set up."""
    sys.stderr.write("out of luck\n")
    sys.stderr.flush()
    os._exit(4)


def elements() -> Callable[..., Any]:
    """Replies with the kind, dtype, shape and bytes of an array, and with the array."""

    def told(array: Any, send: Any) -> Any:
        data = array.data if isinstance(array.shape, tuple) and isinstance(array.dtype, str) else array.tobytes()
        return [type(array).__name__, str(array.dtype), list(array.shape), bytes(data), array]

    return told


def _hang(send: Any, in_c: bool = False) -> None:
    if in_c:
        ctypes.PyDLL(None).sleep(100)  # holds the interpreter's lock: no Python code can run
    time.sleep(100)


def _child(send: Any, group: bool = False) -> int:
    return subprocess.Popen(["sleep", "100"], preexec_fn=os.setpgrp if group else None).pid


def _allocate(send: Any, size: int) -> int:
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(1.0)
    return len(held)


def _burn(send: Any) -> None:
    while True:
        pass


def _garbage(send: Any) -> str:
    os.write(1, b"garbage" * 1000)
    os.write(2, b"more of it")
    print("and more", flush=True)
    return "fine"


def _messages(send: Any, count: int, seconds: float) -> str:
    for i in range(count):
        send(i)
        time.sleep(seconds)
    return "end"


def _line() -> int:
    """The descriptor of the wire: the one socket that this process has."""
    names = os.listdir("/proc/self/fd")
    links = {name: os.readlink(f"/proc/self/fd/{name}") for name in names if os.path.lexists(f"/proc/self/fd/{name}")}
    (found,) = [int(name) for name, link in links.items() if link.startswith("socket:")]
    return found


def _write(send: Any, data: bytes, hang: bool = False) -> None:
    socket.socket(fileno=os.dup(_line())).sendall(data)
    if hang:
        time.sleep(100)


def _fork_and_die(send: Any) -> None:
    if os.fork() == 0:
        time.sleep(100)  # holds a copy of the wire
    os._exit(5)


def _semaphore(send: Any) -> str:
    import multiprocessing

    lock = multiprocessing.get_context("spawn").Lock()
    globals()["kept"] = lock
    return str(lock._semlock.name)  # type: ignore[attr-defined]


def _raise(send: Any, text: str) -> None:
    raise ValueError(text)


def _exit(send: Any, code: int) -> None:
    sys.stderr.write("first\nlast words\n")
    sys.stderr.flush()
    os._exit(code)


_DEEDS = {
    "abort": lambda send: os.abort(),
    "allocate": _allocate,
    "burn": _burn,
    "child": _child,
    "exit": _exit,
    "fork": _fork_and_die,
    "garbage": _garbage,
    "hang": _hang,
    "interrupt": lambda send: os.kill(os.getpid(), signal.SIGINT),
    "kill": lambda send: os.kill(os.getpid(), signal.SIGKILL),
    "messages": _messages,
    "object": lambda send: object(),
    "pid": lambda send: os.getpid(),
    "raise": _raise,
    "semaphore": _semaphore,
    "write": _write,
}
