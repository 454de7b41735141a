"""Small valid files of weights and of jobs, written here byte by byte: what is damaged should be simple.

The weights are those of a decoder with one layer, in every form that files have them in.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from assay.ir.dtypes import Array, is_array
from assay.ops.block_formats import BLOCK_FORMATS
from assay.ops.definitions.blocks import drawn_blocks

VOCABULARY, WIDTH, INNER, HEADS, BLOCKED = 24, 64, 96, 2, 256

CONFIGURATION: Mapping[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
"""What a folder says of the weights in it."""


def _shapes(width: int, inner: int) -> dict[str, tuple[int, ...]]:
    """The tensors of the decoder, by the names of GGUF files."""
    head = width // HEADS
    return {
        "token_embd.weight": (VOCABULARY, width),
        "output_norm.weight": (width,),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.ffn_norm.weight": (width,),
        "blk.0.attn_q.weight": (width, width),
        "blk.0.attn_k.weight": (head, width),
        "blk.0.attn_v.weight": (head, width),
        "blk.0.attn_output.weight": (width, width),
        "blk.0.ffn_gate.weight": (inner, width),
        "blk.0.ffn_up.weight": (inner, width),
        "blk.0.ffn_down.weight": (width, inner),
    }


_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "blk.0.attn_norm": "model.layers.0.input_layernorm",
    "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm",
    "blk.0.attn_q": "model.layers.0.self_attn.q_proj",
    "blk.0.attn_k": "model.layers.0.self_attn.k_proj",
    "blk.0.attn_v": "model.layers.0.self_attn.v_proj",
    "blk.0.attn_output": "model.layers.0.self_attn.o_proj",
    "blk.0.ffn_gate": "model.layers.0.mlp.gate_proj",
    "blk.0.ffn_up": "model.layers.0.mlp.up_proj",
    "blk.0.ffn_down": "model.layers.0.mlp.down_proj",
}


# --- GGUF


def gguf_files() -> list[bytes]:
    """The decoder in each format of blocks and in plain numbers, with a tokenizer."""
    small = [name for name, form in BLOCK_FORMATS.items() if form.elements == 32]
    large = [name for name in BLOCK_FORMATS if name not in small]
    return [
        *(_gguf(WIDTH, INNER, name) for name in ("", *small)),
        *(_gguf(BLOCKED, BLOCKED, name) for name in large),
    ]


def _gguf(width: int, inner: int, form_name: str) -> bytes:
    rng = np.random.default_rng(width)
    form = BLOCK_FORMATS.get(form_name)
    entries, data = b"", b""
    for name, shape in _shapes(width, inner).items():
        packed = form is not None and len(shape) == 2
        content = (
            drawn_blocks(rng, form, shape[0], shape[1] // form.elements)
            if form is not None and packed
            else rng.normal(size=shape).astype(np.float32)
        )
        sizes = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        code = form.code if form is not None and packed else 0
        entries += _text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", code, len(data))
        data += content.tobytes() + bytes(-content.nbytes % 32)
    facts = [_fact(name, value) for name, value in _facts(width, inner).items()]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(_shapes(width, inner)), len(facts)) + b"".join(facts) + entries
    return head + bytes(-len(head) % 32) + data


def _facts(width: int, inner: int) -> dict[str, Any]:
    letters = [chr(ord("a") + at) for at in range(VOCABULARY - 2)]
    return {
        "general.architecture": "llama",
        "llama.embedding_length": width,
        "llama.block_count": 1,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": 1,
        "llama.feed_forward_length": inner,
        "llama.context_length": 64,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*letters, "ab", "<end>"],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.token_type": [*[1] * (VOCABULARY - 1), 3],
        "tokenizer.ggml.eos_token_id": VOCABULARY - 1,
        "tokenizer.chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _fact(name: str, value: Any) -> bytes:
    kinds: Mapping[type, tuple[int, Callable[[Any], bytes]]] = {
        str: (8, _text),
        int: (4, lambda number: struct.pack("<I", number)),
        float: (6, lambda number: struct.pack("<f", number)),
    }
    if not isinstance(value, list):
        code, write = kinds[type(value)]
        return _text(name) + struct.pack("<I", code) + write(value)
    items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    code, write = kinds[type(items[0])]
    return _text(name) + struct.pack("<IIQ", 9, code, len(items)) + b"".join(map(write, items))


# --- files of tensors by name


def _tensors(dtype: type[np.generic]) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    named = {_NAMES[name.removesuffix(".weight")]: shape for name, shape in _shapes(WIDTH, INNER).items()}
    return {f"{name}.weight": rng.normal(size=shape).astype(dtype) for name, shape in named.items()}


def safetensors_files() -> list[bytes]:
    """The decoder in f32 and in f16."""
    return [_safetensors(_tensors(np.float32), "F32"), _safetensors(_tensors(np.float16), "F16")]


def _safetensors(tensors: Mapping[str, Array], kind: str) -> bytes:
    at = 0
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for name, content in tensors.items():
        table[name] = {"dtype": kind, "shape": list(content.shape), "data_offsets": [at, at + content.nbytes]}
        at += content.nbytes
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(content.tobytes() for content in tensors.values())


def torch_files() -> list[bytes]:
    """What `torch.save` writes of tensors in containers, today and before there were archives."""
    small = {name: content[:4] for name, content in _tensors(np.float32).items()}
    nested = {"model": OrderedDict(small), "step": 3, "names": ["a", ("b", None, 2.5)]}
    return [_archive(small), _archive(nested), _old_file(nested)]


_REBUILT = b"ctorch._utils\n_rebuild_tensor_v2\n"
_STORED = b"ctorch\nFloatStorage\n"
_NO_HOOKS = b"ccollections\nOrderedDict\n)R"


def _pickled(item: Any, pieces: dict[str, Array]) -> bytes:
    """The instructions that make an item; tensors are put into `pieces`."""
    if is_array(item):
        key, strides = str(len(pieces)), tuple(step // item.itemsize for step in item.strides)
        pieces[key] = item
        named = b"".join(_pickled(each, pieces) for each in (key, "cpu", int(item.size)))
        place = b"(" + _pickled("storage", pieces) + _STORED + named + b"tQ"
        sizes = b"".join(_pickled(each, pieces) for each in (0, item.shape, strides, False))
        return _REBUILT + b"(" + place + sizes + _NO_HOOKS + b"tR"
    write = _INSTRUCTIONS[type(item)]
    return write(item, lambda each: _pickled(each, pieces))


_Write: TypeAlias = Callable[[Any], bytes]
_INSTRUCTIONS: Mapping[type, Callable[[Any, _Write], bytes]] = {
    str: lambda item, _: b"X" + struct.pack("<I", len(item.encode())) + item.encode(),
    int: lambda item, _: b"J" + struct.pack("<i", item),
    float: lambda item, _: b"G" + struct.pack(">d", item),
    bool: lambda item, _: b"\x88" if item else b"\x89",
    type(None): lambda item, _: b"N",
    tuple: lambda item, write: b"(" + b"".join(map(write, item)) + b"t",
    list: lambda item, write: b"](" + b"".join(map(write, item)) + b"e",
    dict: lambda item, write: b"}(" + _pairs(item, write) + b"u",
    OrderedDict: lambda item, write: _NO_HOOKS + b"(" + _pairs(item, write) + b"u",
}


def _pairs(item: Mapping[str, Any], write: _Write) -> bytes:
    return b"".join(write(key) + write(value) for key, value in item.items())


def _whole(instructions: bytes) -> bytes:
    return b"\x80\x02" + instructions + b"."


def _archive(content: Mapping[str, Any]) -> bytes:
    pieces: dict[str, Array] = {}
    records = {"data.pkl": _whole(_pickled(content, pieces)), "byteorder": b"little", "version": b"3\n"}
    return archived({**records, **{f"data/{key}": piece.tobytes() for key, piece in pieces.items()}})


def _old_file(content: Mapping[str, Any]) -> bytes:
    pieces: dict[str, Array] = {}
    pickled = _pickled(content, pieces)
    magic = b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
    machine = {"protocol_version": 1001, "little_endian": True}
    parts = [magic, _pickled(1001, {}), _pickled(machine, {}), pickled, _pickled(list(pieces), {})]
    memory = [struct.pack("<q", piece.size) + piece.tobytes() for piece in pieces.values()]
    return b"".join(map(_whole, parts)) + b"".join(memory)


def archived(records: Mapping[str, bytes]) -> bytes:
    """An archive of torch's form."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), content)
    return made.getvalue()


# --- jobs


def job_files() -> Sequence[bytes]:
    """Jobs that write, chat and embed."""
    from assay.jobs.embed import embed_job
    from assay.jobs.generate import Sampling, generate_job
    from assay.jobs.job import HEADER

    digest = "sha256:" + "0" * 64
    jobs = [
        generate_job(digest, digest, Sampling(most=4)),
        generate_job(digest, digest, Sampling(temperature=0.7), chat=True),
        embed_job(digest, digest, ["f32[1, ?, 8]"]),
    ]
    return [(HEADER + job.text).encode() for job in jobs]
