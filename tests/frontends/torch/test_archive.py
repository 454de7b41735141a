"""Hostile `.pt2` files: nothing in them runs, whatever their zip structure makes of their names; refusals are typed."""

from __future__ import annotations

import json
import pickle
import random
import stat
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from frontends.torch import archives
from frontends.torch.archives import Entry
from frontends.torch.hostile import (
    PROGRAM,
    WEIGHTS,
    Archive,
    Records,
    edited,
    load_or_refuse,
    refusal,
    replaced,
)
from torch import Tensor, nn
from torch.export import export

import assay
from assay.errors import ImportFailed
from assay.frontends.torch.archive import read_program


class Deed:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return __import__("os").mkdir, (str(self.path),)


# --- what an attacker would like to have executed, as records by their names in the archive

CONSTANTS = "data/constants/model_constants_config.json"


def saved(mark: Path) -> bytes:
    file = mark.with_suffix(".bomb")
    torch.save(Deed(mark), file)
    return file.read_bytes()


def pickled_constant(records: Records, mark: Path) -> Records:
    def change(document: Any) -> None:
        first = next(iter(document["config"].values()))
        first.update(path_name="opaque_obj_0", use_pickle=True, tensor_meta=None)

    return {"data/constants/opaque_obj_0": pickle.dumps(Deed(mark)), **edited(records, CONSTANTS, change)}


def pickled_weight(records: Records, mark: Path) -> Records:
    def change(document: Any) -> None:
        next(iter(document["config"].values()))["use_pickle"] = True

    return {"data/weights/weight_0": saved(mark), **edited(records, WEIGHTS, change)}


def in_model(change: Callable[[Any, str], None]) -> Callable[[Records, Path], Records]:
    """A payload in the program's JSON; `change` gets the document and Python code that leaves the mark."""
    return lambda records, mark: edited(
        records, PROGRAM, lambda document: change(document, f"__import__('os').mkdir({str(mark)!r})")
    )


def sizes_of(document: Any) -> list[Any]:
    """Every symbolic size in a program."""
    found: list[Any] = []

    def walk(item: Any) -> None:
        if isinstance(item, dict):
            found.extend([item] if "expr_str" in item else [])
            for part in item.values():
                walk(part)
        elif isinstance(item, list):
            for part in item:
                walk(part)

    walk(document)
    assert found
    return found


def code_in_size(document: Any, code: str) -> None:
    for size in sizes_of(document):
        size["expr_str"] = f"{code} or {size['expr_str']}"


def code_in_object_for_size(document: Any, code: str) -> None:
    for size in sizes_of(document):
        size["expr_str"] = {"a": code, code: 1}


def code_in_list_for_size(document: Any, code: str) -> None:
    for size in sizes_of(document):
        size["expr_str"] = [[code]]


def call(target: str, *arguments: Any) -> dict[str, Any]:
    inputs = [{"name": "", "arg": argument, "kind": 1} for argument in arguments]
    outputs = [{"as_tensor": {"name": "evil"}}]
    node = {"target": target, "inputs": inputs, "outputs": outputs, "metadata": {}, "name": "evil"}
    return node | {"is_hop_single_tensor_return": True}


def with_node(*nodes: Any) -> Callable[[Any, str], None]:
    def change(document: Any, code: str) -> None:
        text = json.dumps(nodes).replace("COMMAND", f"mkdir {code.split(chr(39))[3]}")
        graph = document["graph_module"]["graph"]
        graph["nodes"][:0] = json.loads(text)
        graph["tensor_values"]["evil"] = graph["tensor_values"]["x"]

    return change


def code_in_guards(document: Any, code: str) -> None:
    document["guards_code"] = [code]


def code_in_name(document: Any, code: str) -> None:
    text = json.dumps(document["graph_module"]).replace('"x"', json.dumps(f"x={code}"))
    document["graph_module"] = json.loads(text)


def import_by_nesting(document: Any, code: str) -> None:
    enum = json.dumps({"__enum__": True, "fqn": "antigravity:x", "name": "x"})
    for entry in document["graph_module"]["module_call_graph"]:
        if entry["signature"]:
            entry["signature"]["in_spec"] = json.dumps(
                [1, {"type": "builtins.dict", "context": f"[{enum}]", "children_spec": []}]
            )


PAYLOADS: dict[str, Callable[[Records, Path], Records]] = {
    "sample inputs": lambda records, mark: {"data/sample_inputs/model.pt": saved(mark)},
    "old weights": lambda records, mark: {"data/weights/model.pt": saved(mark)},
    "old constants": lambda records, mark: {"data/constants/model.pt": saved(mark)},
    "pickled constant": pickled_constant,
    "pickled weight": pickled_weight,
    "size": in_model(code_in_size),
    "object for a size": in_model(code_in_object_for_size),
    "list for a size": in_model(code_in_list_for_size),
    "guards": in_model(code_in_guards),
    "name": in_model(code_in_name),
    "nesting": in_model(import_by_nesting),
    "python's call": in_model(
        with_node(call("_operator.call", {"as_operator": "torch.os.system"}, {"as_string": "COMMAND"}))
    ),
    "torch's exec": in_model(
        with_node(call("torch.ops.higher_order.wrap", {"as_operator": "torch.os.system"}, {"as_string": "COMMAND"}))
    ),
    "library": in_model(with_node(call("torch.ops.load_library", {"as_string": "/evil.so"}))),
    "module": in_model(with_node(call("torch.ops.import_module", {"as_string": "antigravity"}))),
}


# --- how a record is put into an archive


def mapped(change: Callable[[str], str], *, first: bool) -> Callable[[list[Entry], list[Entry]], Archive]:
    """The evil records under changed names, before or after the sound ones."""

    def build(clean: list[Entry], evil: list[Entry]) -> Archive:
        extra = [archives.renamed(entry, change(entry.name)) for entry in evil]
        return ([*extra, *clean] if first else [*clean, *extra]), {}

    return build


def changed(**fields: Any) -> Callable[[list[Entry], list[Entry]], Archive]:
    """The evil records in the place of sound ones, all written in another way."""
    return lambda clean, evil: ([replace(entry, **fields) for entry in replaced(clean, evil)[0]], {})


def around(**parts: bytes) -> Callable[[list[Entry], list[Entry]], Archive]:
    return lambda clean, evil: (replaced(clean, evil)[0], parts)


def two_names(clean: list[Entry], evil: list[Entry]) -> Archive:
    """The directory calls an evil record something harmless, its own header what torch looks for."""
    return [
        *(replace(entry, name="model/extra/note", local_name=entry.name) for entry in evil[:1]),
        *clean,
    ], {}


def other_names(clean: list[Entry], evil: list[Entry]) -> Archive:
    return [replace(entry, local_name="model/extra/note") for entry in replaced(clean, evil)[0]], {}


def two_archives(clean: list[Entry], evil: list[Entry]) -> Archive:
    """A whole archive after another: readers that look from the front and from the end differ."""
    return replaced(clean, evil)[0], {"before": b"PK\5\6" + bytes(18)}


def last_part(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda name: "/".join([*name.split("/")[:-1], change(name.split("/")[-1])])


SPELLINGS: dict[str, Callable[[str], str]] = {
    "the same": lambda name: name,
    "upper case": lambda name: "/".join([name.split("/")[0], *map(str.upper, name.split("/")[1:])]),
    "title case": lambda name: "/".join([name.split("/")[0], *map(str.title, name.split("/")[1:])]),
    "upper case folder": lambda name: name.upper(),
    "one letter": last_part(lambda last: last.swapcase()),
    "dot": lambda name: name.replace("/", "/./", 1),
    "slashes": lambda name: name.replace("/", "//", 1),
    "parent": lambda name: name.replace("/", "/other/../", 1),
    "backslash": lambda name: name.replace("/", "\\"),
    "first backslash": lambda name: name.replace("/", "\\", 1),
    "absolute": lambda name: f"/{name}",
    "current": lambda name: f"./{name}",
    "other root": lambda name: f"other/{name.partition('/')[2]}",
    "no root": lambda name: name.partition("/")[2],
    "zero": lambda name: f"{name}\0.txt",
    "folder": lambda name: f"{name}/",
    "long s": lambda name: name.replace("s", "ſ"),
    "blank": lambda name: f"{name} ",
}
STRUCTURES: dict[str, Callable[[list[Entry], list[Entry]], Archive]] = {
    **{f"{name}, first": mapped(change, first=True) for name, change in SPELLINGS.items()},
    **{f"{name}, last": mapped(change, first=False) for name, change in SPELLINGS.items()},
    "replaced": replaced,
    "two names": two_names,
    "other names": other_names,
    "streamed": changed(flags=archives.STREAMED | archives.UTF8),
    "zip64": changed(zip64=True),
    "compressed": changed(method=zipfile.ZIP_DEFLATED),
    "links": changed(attributes=(stat.S_IFLNK | 0o777) << 16),
    "folders": changed(attributes=(stat.S_IFDIR | 0o777) << 16),
    "encrypted": changed(flags=archives.UTF8 | 1),
    "comments": changed(comment=b"PK\1\2" * 50),
    "comment": around(comment=b"PK\5\6" + bytes(18)),
    "data before": around(before=b"#!/bin/sh\nexit 1\n" * 10),
    "data after": around(after=b"PK\5\6" + bytes(40)),
    "two archives": two_archives,
    "wrong checksum": changed(crc=1),
    "wrong size": changed(stated_size=7),
}


def payload(kind: str, clean: list[Entry], mark: Path) -> list[Entry]:
    records = {entry.name.partition("/")[2]: entry.content for entry in clean}
    return [Entry(f"model/{name}", content) for name, content in PAYLOADS[kind](records, mark).items()]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_nothing_in_a_file_is_executed(structure: str, sound: Path, mark: Path) -> None:
    clean = archives.read(sound)
    for kind in PAYLOADS:
        entries, parts = STRUCTURES[structure](clean, payload(kind, clean, mark))
        load_or_refuse(archives.write(mark.with_suffix(".pt2"), entries, **parts))
        assert not mark.exists(), kind


HARMLESS = {"guards", "sample inputs"}
"""Payloads in what is not read: the file is as good as without them."""


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_payload_that_is_seen_is_refused(kind: str, sound: Path, mark: Path) -> None:
    clean = archives.read(sound)
    entries, _ = replaced(clean, payload(kind, clean, mark))
    refused = load_or_refuse(archives.write(mark.with_suffix(".pt2"), entries))
    assert (refused is None) == (kind in HARMLESS)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("data/aotinductor/model/model.so", "compiled code"),
        ("data/constants/opaque_obj_0", "a pickled object"),
        ("data/constants/custom_obj_0", "a pickled object"),
        ("data/weights/model.pt", "a pickled object"),
        ("code/model.py", "belongs to no program"),
    ],
)
def test_what_is_no_part_of_a_program_is_refused(record: str, says: str, sound: Path, tmp_path: Path) -> None:
    path = archives.write(tmp_path / "m.pt2", [*archives.read(sound), Entry(f"model/{record}", b"evil")])
    with pytest.raises(ImportFailed, match=says):
        assay.load(path)


def test_structures_at_random(sound: Path, mark: Path) -> None:
    """Several of these at once, and bytes of headers changed."""
    chance = random.Random(5)
    clean = archives.read(sound)
    for _ in range(60):
        evil = payload(chance.choice(list(PAYLOADS)), clean, mark)
        entries, parts = STRUCTURES[chance.choice(list(STRUCTURES))](clean, evil)
        spelling = SPELLINGS[chance.choice(list(SPELLINGS))]
        entries = [replace(e, name=spelling(e.name)) if chance.random() < 0.1 else e for e in entries]
        chance.shuffle(entries)
        path = archives.write(mark.with_suffix(".pt2"), entries, **parts)
        data = bytearray(path.read_bytes())
        for _ in range(chance.choice([0, 0, 1, 4])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        refusal(lambda path=path: read_program(path, samples=True))  # as `assay trace` does
        refusal(lambda path=path: assay.load(path))
        assert not mark.exists()


# --- programs changed at random

ODD: list[Any] = [
    *(None, True, -1, 1 << 70, 10**400, 1.5, "", "self", "import", "a b", '"]#', "2**2**30", "x" * 20000, [], {}, [[]]),
    *("torch.ops.aten.from_file.default", "torch.ops.higher_order.cond", "_operator.pow", "torch.os.system"),
    *({"as_int": -5}, {"as_expr": {"expr_str": "u3"}}, {"as_operator": "torch.ops.aten.relu.default"}),
    *({"as_string": "/etc/passwd"}, {"as_device": {"type": "cuda", "index": 3}}, {"as_none": True}),
]


def places(item: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all parts of a document."""
    inside = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    return [path, *(place for key, part in inside for place in places(part, (*path, key)))]


def part_at(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def test_programs_changed_at_random(sound: Path, mark: Path) -> None:
    """One part of the JSON is something odd, or another part of it, or gone: loaded or refused, never more."""
    chance = random.Random(11)
    clean = archives.read(sound)
    texts = [i for i, entry in enumerate(clean) if entry.name.endswith(".json")]
    outcomes: list[bool] = []
    for _ in range(120):
        chosen = chance.choice(texts)
        document = json.loads(clean[chosen].content)
        found = places(document)
        *above, last = chance.choice(found[1:])
        holder = part_at(document, tuple(above))
        holder[last] = chance.choice([chance.choice(ODD), part_at(document, chance.choice(found))])
        try:
            content = json.dumps(document).encode()
        except ValueError:  # the document holds itself now
            continue
        entries = [replace(e, content=content) if i == chosen else e for i, e in enumerate(clean)]
        path = archives.write(mark.with_suffix(".pt2"), entries)
        outcomes.append(refusal(lambda path=path: assay.load(path)) is None)
        assert not mark.exists()
    assert len(outcomes) > 80
    assert outcomes.count(False) > 40


def test_shared_memory_of_weights_is_kept(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.arange(6.0).reshape(2, 3))
            self.register_buffer("b", self.a.detach()[1])
            self.register_buffer("none", torch.empty(0, 4))
            self.register_buffer("turned", torch.arange(6, dtype=torch.int16).reshape(2, 3).T)

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.a + self.b + self.none.sum() + self.turned.sum()

    path = tmp_path / "a model, é.pt2"
    program = export(Tied(), (torch.ones(2, 2),))
    torch.export.save(program, path)
    read, theirs = read_program(path, samples=True), torch.export.load(path)
    assert read.state_dict.keys() == theirs.state_dict.keys()
    for name, tensor in theirs.state_dict.items():
        assert torch.equal(read.state_dict[name], tensor)
        assert read.state_dict[name].stride() == tensor.stride()
        assert type(read.state_dict[name]) is type(tensor)
    pointers = [read.state_dict[name].untyped_storage().data_ptr() for name in ("a", "b")]
    assert pointers[0] == pointers[1]
    (example,) = read.example_inputs[0]
    assert torch.equal(example, torch.ones(2, 2))
    assert str(read.graph) == str(theirs.graph)
