"""The wire to a worker process: frames, an encoding of plain data, and shared memory for large arrays.

This file runs on both sides. The other side may be another Python (3.8 or later) without this package and without
NumPy, so the standard library is all it needs.

A frame is a header, a table of buffers, a body and the small buffers. Large buffers lie in one nameless piece of shared
memory, whose descriptor travels with the header: when the last process that holds it ends, it is gone.
"""

from __future__ import annotations

import array
import fcntl
import importlib
import math
import mmap
import os
import pickle
import resource
import socket
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

READY, REQUEST, TOLD, REPLY, FAILED = range(5)
"""Kinds of frames: the worker can be asked; a request; a message on the way; the reply; the request failed."""
PLAIN, PICKLED = range(2)
"""How a body is encoded."""
SHARED = 1 << 20
"""Bytes from which on a buffer travels in shared memory."""

DTYPES: dict[str, int] = {
    **dict.fromkeys(("complex128",), 16),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("bool", "int8", "uint8", "int4", "int2", "uint4", "uint2"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"), 1),
}
"""Bytes of an element of each dtype that an array may have, by NumPy's and ml_dtypes' names. Object arrays of `str` may
travel too."""

_HEADER = struct.Struct("<4sBBHIQ")
_ROW = struct.Struct("<Qq")
_MAGIC = b"AsW1"
_LONGEST_BODY, _MOST_BUFFERS = 1 << 30, 1 << 16
_ALIGNED = 64
_PART = 16 << 20
_INT64 = range(-(1 << 63), 1 << 63)
_ADD_SEALS, _GET_SEALS, _SEAL_SHRINK = 1033, 1034, 2  # of fcntl, which in Python 3.8 has no names for them


class BadFrame(Exception):
    """What came along the wire is no frame, or holds what it must not."""


class Closed(Exception):
    """The other end of the wire is closed."""


class CannotSend(Exception):
    """A value that the encoding does not have."""


class Elements:
    """An array where there is no NumPy, or where it lacks the dtype: the dtype's name, the shape, bytes in C order."""

    def __init__(self, dtype: str, shape: Sequence[int], data: Any) -> None:
        self.dtype, self.shape, self.data = dtype, tuple(shape), data


# --- plain data: None, bool, int, float, complex, str, bytes, list, tuple, dict, arrays


class _Writer:
    def __init__(self) -> None:
        self.body = bytearray()
        self.buffers: list[memoryview] = []

    def write(self, value: Any) -> None:
        kind = value.__class__
        writer = _WRITERS.get(kind)
        if writer is not None:
            writer(self, value)
        elif isinstance(value, Elements):
            self._array(b"a", value.dtype, value.shape, memoryview(value.data).cast("B"))
        elif kind.__module__ == "numpy" or hasattr(value, "__array_interface__"):
            self._numpy(value)
        else:
            raise CannotSend(f"a {kind.__module__}.{kind.__qualname__} is no plain data")

    def sized(self, tag: bytes, data: Any) -> None:
        self.body += tag + struct.pack("<Q", len(data))
        self.body += data

    def integer(self, value: int) -> None:
        if value in _INT64:
            self.body += b"i" + struct.pack("<q", value)
        else:
            self.sized(b"I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))

    def bytes(self, value: Any) -> None:
        if len(value) < SHARED:
            self.sized(b"b", value)
        else:
            self._buffer(b"B", memoryview(value))

    def many(self, tag: bytes, values: Sequence[Any]) -> None:
        self.body += tag + struct.pack("<Q", len(values))
        for each in values:
            self.write(each)

    def mapping(self, values: dict[Any, Any]) -> None:
        self.body += b"m" + struct.pack("<Q", len(values))
        for key, value in values.items():
            self.write(key)
            self.write(value)

    def _numpy(self, value: Any) -> None:
        np = sys.modules["numpy"]
        scalar = isinstance(value, np.generic)
        whole = np.asarray(value, order="C")
        if whole.dtype == object:
            self._texts(whole)
            return
        if not whole.dtype.isnative:
            whole = whole.astype(whole.dtype.newbyteorder("="))
        data = memoryview(whole.reshape(-1).view(np.uint8))
        self._array(b"g" if scalar else b"a", whole.dtype.name, whole.shape, data)

    def _texts(self, whole: Any) -> None:
        texts = whole.reshape(-1).tolist()
        if not all(type(each) is str for each in texts):
            raise CannotSend("an array of objects that are not all str is no plain data")
        self.body += b"o"
        self.write(list(whole.shape))
        self.write(texts)

    def _array(self, tag: bytes, dtype: str, shape: Sequence[int], data: memoryview) -> None:
        if dtype not in DTYPES:
            raise CannotSend(f"an array of {dtype} is no plain data")
        self._buffer(tag, data)
        self.write(dtype)
        self.write(list(shape))

    def _buffer(self, tag: bytes, data: memoryview) -> None:
        self.body += tag + struct.pack("<Q", len(self.buffers))
        self.buffers.append(data)


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): lambda to, value: to.body.extend(b"n"),
    bool: lambda to, value: to.body.extend(b"t" if value else b"f"),
    int: _Writer.integer,
    float: lambda to, value: to.body.extend(b"d" + struct.pack("<d", value)),
    complex: lambda to, value: to.body.extend(b"c" + struct.pack("<dd", value.real, value.imag)),
    str: lambda to, value: to.sized(b"s", value.encode("utf-8", "surrogatepass")),
    bytes: _Writer.bytes,
    bytearray: _Writer.bytes,
    list: lambda to, value: to.many(b"l", value),
    tuple: lambda to, value: to.many(b"u", value),
    dict: _Writer.mapping,
}


class _Reader:
    def __init__(self, body: memoryview, buffers: Sequence[memoryview]) -> None:
        self._body, self._buffers, self._at = body, buffers, 0

    def whole(self) -> Any:
        value = self.read()
        if self._at != len(self._body):
            raise BadFrame("a body goes on after its value")
        return value

    def read(self) -> Any:
        return _READERS[bytes(self.take(1))](self)

    def take(self, length: int) -> memoryview:
        found = self._body[self._at : self._at + length]
        if len(found) != length:
            raise BadFrame("a body ends too early")
        self._at += length
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def sized(self) -> memoryview:
        return self.take(self.number("<Q"))

    def many(self) -> list[Any]:
        return [self.read() for _ in range(self.number("<Q"))]

    def mapping(self) -> dict[Any, Any]:
        return {self.read(): self.read() for _ in range(self.number("<Q"))}

    def buffer(self) -> memoryview:
        index: int = self.number("<Q")
        return self._buffers[index]

    def array(self) -> Any:
        data, dtype, shape = self.buffer(), self.read(), self.read()
        if min(shape, default=0) < 0 or math.prod(shape) * DTYPES[dtype] != len(data):
            raise BadFrame(f"an array of {dtype} and shape {shape} cannot have {len(data)} bytes")
        np, found = _optional("numpy"), _dtype(dtype)
        if np is None or found is None:
            return Elements(dtype, shape, data)
        return np.frombuffer(data, np.uint8).view(found).reshape(shape)

    def scalar(self) -> Any:
        found = self.array()
        return found[()] if hasattr(found, "ndim") else found

    def texts(self) -> Any:
        shape, texts = self.read(), self.read()
        np = _optional("numpy")
        if np is None:
            return Elements("object", shape, texts)
        found = np.empty(len(texts), object)
        found[:] = texts
        return found.reshape(shape)


_READERS: dict[bytes, Callable[[_Reader], Any]] = {
    b"n": lambda of: None,
    b"t": lambda of: True,
    b"f": lambda of: False,
    b"i": lambda of: of.number("<q"),
    b"I": lambda of: int.from_bytes(of.sized(), "little", signed=True),
    b"d": lambda of: of.number("<d"),
    b"c": lambda of: complex(of.number("<d"), of.number("<d")),
    b"s": lambda of: str(of.sized(), "utf-8", "surrogatepass"),
    b"b": lambda of: bytes(of.sized()),
    b"B": lambda of: bytes(of.buffer()),
    b"l": _Reader.many,
    b"u": lambda of: tuple(of.many()),
    b"m": _Reader.mapping,
    b"a": _Reader.array,
    b"g": _Reader.scalar,
    b"o": _Reader.texts,
}


def _optional(name: str) -> Any:
    """A module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _dtype(name: str) -> Any:
    """The dtype that NumPy or ml_dtypes has under a name of `DTYPES`, or None."""
    for library in ("numpy", "ml_dtypes"):
        found = getattr(_optional(library), name, None)
        if found is not None:
            return found
    return None


def encode(value: Any, codec: int = PLAIN) -> tuple[bytearray, list[memoryview]]:
    """The body of a value and its buffers; CannotSend for what the encoding does not have."""
    if codec == PICKLED:
        kept: list[pickle.PickleBuffer] = []
        try:
            body = bytearray(pickle.dumps(value, 5, buffer_callback=kept.append))
        except Exception as error:  # whatever the value's own code raises
            raise CannotSend(f"{type(error).__name__}: {error}") from error
        return body, [each.raw() for each in kept]
    writer = _Writer()
    try:
        writer.write(value)
    except RecursionError:
        raise CannotSend("it is nested too deeply") from None
    return writer.body, writer.buffers


def decode(body: memoryview, buffers: Sequence[memoryview], codec: int = PLAIN) -> Any:
    """The value of a body. Its arrays are contiguous, aligned, writable, and belong to the caller alone."""
    try:
        return pickle.loads(body, buffers=buffers) if codec == PICKLED else _Reader(body, buffers).whole()
    except BadFrame:
        raise
    except Exception as error:
        raise BadFrame(f"a body cannot be read: {type(error).__name__}: {error}") from error


# --- frames


class Connection:
    """One end of the wire. `idle` is called whenever the socket's timeout passes; what it raises is raised.

    Sending is safe from several threads; one thread may receive. `Closed` when the other end is.
    """

    def __init__(self, end: socket.socket, codec: int, idle: Callable[[], None] = lambda: None) -> None:
        self._end, self._codec, self._idle = end, codec, idle
        self._sending = threading.Lock()

    def send(self, kind: int, value: Any, codec: int | None = None) -> None:
        """Send a value in a frame of a kind."""
        codec = self._codec if codec is None else codec
        body, buffers = encode(value, codec)
        if len(body) > _LONGEST_BODY or len(buffers) > _MOST_BUFFERS:
            raise CannotSend(f"it has {len(body)} bytes besides {len(buffers)} buffers")
        rows: list[tuple[int, int]] = []
        size = 0
        for each in buffers:
            shared = each.nbytes >= SHARED
            rows.append((each.nbytes, size if shared else -1))
            size += -(-each.nbytes // _ALIGNED) * _ALIGNED if shared else 0
        head = _HEADER.pack(_MAGIC, kind, codec, 0, len(rows), len(body)) + b"".join(_ROW.pack(*row) for row in rows)
        segment = _segment(buffers, rows, size) if size else None
        try:
            with self._sending:
                self._write(head, segment)
                self._write(body)
                for index, (_, offset) in enumerate(rows):
                    if offset < 0:
                        self._write(buffers[index])
        finally:
            if segment is not None:
                os.close(segment)

    def receive(self) -> tuple[int, Any]:
        """The kind and the value of the next frame; BadFrame for anything else."""
        head, segment = self._head()
        try:
            magic, kind, codec, _, count, length = _HEADER.unpack(head)
            if magic != _MAGIC or kind > FAILED or count > _MOST_BUFFERS or length > _LONGEST_BODY:
                raise BadFrame(f"{bytes(head[:8])!r} begins no frame")
            if codec not in (PLAIN, self._codec):
                raise BadFrame("a pickle came where nobody agreed on pickles")
            table = self._read(_ROW.size * count)
            rows = [_ROW.unpack_from(table, _ROW.size * i) for i in range(count)]
            body = self._read(length)
            shared = memoryview(b"") if segment is None else _content(segment)
            buffers = [self._buffer(size, offset, shared) for size, offset in rows]
        finally:
            if segment is not None:
                os.close(segment)
        return kind, decode(body, buffers, codec)

    def _buffer(self, size: int, offset: int, shared: memoryview) -> memoryview:
        if offset < 0 and size < SHARED:
            return self._read(size)
        if offset < 0 or offset + size > len(shared):
            raise BadFrame("a buffer lies outside of its memory")
        return shared[offset : offset + size]

    def _write(self, data: Any, descriptor: int | None = None) -> None:
        left = memoryview(data)
        extra = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        while left.nbytes:
            try:
                sent = self._end.sendmsg([left], extra)
            except TimeoutError:
                self._idle()
                continue
            except ConnectionError as error:
                raise Closed from error
            left, extra = left[sent:], []

    def _head(self) -> tuple[memoryview, int | None]:
        """The header, and the descriptor that came with it."""
        size = array.array("i", [0]).itemsize
        while True:
            try:
                data, extra, _, _ = self._end.recvmsg(_HEADER.size, socket.CMSG_SPACE(size), _CLOSE_ON_EXEC)
                break
            except TimeoutError:
                self._idle()
            except ConnectionError as error:
                raise Closed from error
        if not data:
            raise Closed
        found = array.array("i", b"".join(bytes(each[:size]) for _, _, each in extra))
        try:
            return memoryview(data + bytes(self._read(_HEADER.size - len(data)))), found[0] if found else None
        except BaseException:
            for each in found:
                os.close(each)
            raise

    def _read(self, length: int) -> memoryview:
        """So many bytes, in memory of their own."""
        whole = memoryview(bytearray(length))
        left = whole
        while left.nbytes:
            try:
                count = self._end.recv_into(left)
            except TimeoutError:
                self._idle()
                continue
            except ConnectionError as error:
                raise Closed from error
            if not count:
                raise Closed
            left = left[count:]
        return whole


_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def _segment(buffers: Sequence[memoryview], rows: Sequence[tuple[int, int]], size: int) -> int:
    """The descriptor of nameless memory that holds the buffers with an offset; nobody can make it smaller."""
    descriptor = _nameless()
    try:
        os.ftruncate(descriptor, size)
        for index, (_, offset) in enumerate(rows):
            left = buffers[index] if offset >= 0 else memoryview(b"")
            while left.nbytes:
                count = os.pwrite(descriptor, left, offset)
                left, offset = left[count:], offset + count
        if hasattr(os, "memfd_create"):
            fcntl.fcntl(descriptor, _ADD_SEALS, _SEAL_SHRINK)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("assay", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _content(descriptor: int) -> memoryview:
    """What lies in shared memory: mapped if nobody can make it smaller, which would end who reads it; else copied.

    Python keeps a descriptor for each mapping. So where half of those that there may be are in use, it is copied too.
    """
    found = os.fstat(descriptor)
    size = found.st_size
    if not size or not stat.S_ISREG(found.st_mode):
        raise BadFrame("a descriptor came that is no shared memory")
    if _sealed(descriptor) and descriptor < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
        return memoryview(mmap.mmap(descriptor, size))
    whole = bytearray()
    while len(whole) < size:
        part = os.pread(descriptor, _PART, len(whole))
        if not part:
            raise BadFrame("shared memory became smaller")
        whole += part
    return memoryview(whole)


def _sealed(descriptor: int) -> bool:
    try:
        return bool(fcntl.fcntl(descriptor, _GET_SEALS) & _SEAL_SHRINK)
    except OSError:
        return False
