"""Hostile `.pt2` files: nothing in them runs, whatever their zip structure makes of their names; refusals are typed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import random
import stat
import typing
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frontends.torch import archives
from frontends.torch.archives import Entry
from torch import Tensor, nn
from torch._export.serde import schema, union
from torch.export import Dim, export

import assay
from assay.errors import AssayError, ImportFailed, LimitExceeded
from assay.frontends.torch.archive import read_program
from assay.frontends.torch.expressions import plain_arithmetic
from assay.frontends.torch.texts import KEPT, LEFT_OUT, TEXTS


class Model(nn.Module):
    """A weight, a buffer, a constant and a dynamic size."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))
        self.register_buffer("shift", torch.ones(3))
        self.fixed = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.shift * self.fixed + x.shape[0]


X = np.ones((4, 3), np.float32)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "model.pt2"
    torch.export.save(export(Model(), (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n")},)), path)
    return path


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """What appears if something of a file was executed."""
    return tmp_path / "mark"


class Deed:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return __import__("os").mkdir, (str(self.path),)


def refusal(read: Callable[[], Any]) -> AssayError | None:
    """The error that reading a file ends with, which must be a typed one with a place and a hint; None without."""
    try:
        read()
    except AssayError as error:
        refused = error
    else:
        return None
    assert refused.where
    assert refused.hint
    return refused


def load_or_refuse(path: Path) -> AssayError | None:
    """The refusal of a file; None if it was loaded, and then it computes what the sound one does."""
    found: list[assay.Session] = []
    refused = refusal(lambda: found.append(assay.load(path)))
    for session in found:
        (result,) = session.run({"x": X}).values()
        np.testing.assert_allclose(result, Model()(torch.from_numpy(X)).detach().numpy())
    return refused


# --- what an attacker would like to have executed, as records by their names in the archive

Records = dict[str, bytes]
PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"


def saved(mark: Path) -> bytes:
    file = mark.with_suffix(".bomb")
    torch.save(Deed(mark), file)
    return file.read_bytes()


def edited(records: Records, name: str, change: Callable[[Any], None]) -> Records:
    document = json.loads(records[name])
    change(document)
    return {name: json.dumps(document).encode()}


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

Archive = tuple[list[Entry], dict[str, bytes]]


def mapped(change: Callable[[str], str], *, first: bool) -> Callable[[list[Entry], list[Entry]], Archive]:
    """The evil records under changed names, before or after the sound ones."""

    def build(clean: list[Entry], evil: list[Entry]) -> Archive:
        extra = [archives.renamed(entry, change(entry.name)) for entry in evil]
        return ([*extra, *clean] if first else [*clean, *extra]), {}

    return build


def replaced(clean: list[Entry], evil: list[Entry]) -> Archive:
    names = {entry.name for entry in evil}
    return [*(entry for entry in clean if entry.name not in names), *evil], {}


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


# --- sizes


def test_a_record_that_unpacks_to_much_is_not_unpacked(sound: Path, tmp_path: Path) -> None:
    big = Entry("model/data/weights/weight_7", bytes(300 << 20), method=zipfile.ZIP_DEFLATED)
    path = archives.write(tmp_path / "bomb.pt2", [*archives.read(sound), big])
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ImportFailed, match="is compressed"):
        assay.load(path)


def test_records_that_share_their_bytes_are_refused(sound: Path, tmp_path: Path) -> None:
    clean = archives.read(sound)
    first = Entry("model/extra/0", bytes(1 << 20))
    copies = [replace(first, name=f"model/extra/{i}", local_name=first.name, at=0) for i in range(1, 300)]
    path = archives.write(tmp_path / "overlap.pt2", [first, *clean, *copies])
    with pytest.raises(ImportFailed, match="overlap"):
        assay.load(path)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (assay.Limits(model_bytes=1000), "more than 1000 bytes"),
        (assay.Limits(text_bytes=1000), "of text"),
        (assay.Limits(nodes=2), "more than 2 nodes"),
        (assay.Limits(tensor_bytes=8), "has the sizes"),
    ],
)
def test_limits_hold(limits: assay.Limits, says: str, sound: Path) -> None:
    with pytest.raises(LimitExceeded, match=says):
        assay.load(sound, assay.SessionOptions(limits=limits))


META_CHANGES: dict[str, dict[str, Any]] = {
    "huge": {"sizes": [{"as_int": 1 << 40}], "strides": [{"as_int": 0}]},
    "past the end": {"sizes": [{"as_int": 4}]},
    "strides past the end": {"strides": [{"as_int": 2}]},
    "offset past the end": {"storage_offset": {"as_int": 1}},
    "negative stride": {"strides": [{"as_int": -1}], "storage_offset": {"as_int": 2}},
    "negative offset": {"storage_offset": {"as_int": -1}},
    "negative size": {"sizes": [{"as_int": -3}]},
    "symbolic": {"sizes": [{"as_expr": {"expr_str": "s0"}}]},
    "lists that differ": {"strides": []},
    "another device": {"device": {"type": "meta", "index": None}},
    "sparse": {"layout": 1},
    "no such dtype": {"dtype": 99},
    "wrong width": {"dtype": 8},
    "no number": {"sizes": [{"as_int": "3"}]},
    "true": {"sizes": [{"as_int": True}]},
}


@pytest.mark.parametrize("kind", META_CHANGES)
def test_tensors_stay_within_their_bytes(kind: str, sound: Path, tmp_path: Path) -> None:
    clean = archives.read(sound)
    records = {entry.name.partition("/")[2]: entry.content for entry in clean}

    def change(document: Any) -> None:
        document["config"]["weight"]["tensor_meta"].update(META_CHANGES[kind])

    evil = [Entry(f"model/{name}", data) for name, data in edited(records, WEIGHTS, change).items()]
    refused = load_or_refuse(archives.write(tmp_path / "m.pt2", replaced(clean, evil)[0]))
    assert refused is not None
    assert "config" not in refused.message


# --- numbers of any length


def sized(target: str, *arguments: Any, name: str = "big0") -> dict[str, Any]:
    inputs = [{"name": "", "arg": argument, "kind": 1} for argument in arguments]
    outputs = [{"as_sym_int": {"as_name": name}}]
    return {"target": target, "inputs": inputs, "outputs": outputs, "metadata": {}, "name": name}


def named(name: str) -> dict[str, Any]:
    return {"as_sym_int": {"as_name": name}}


def squares(times: int) -> list[dict[str, Any]]:
    names = ["size", *(f"big{i}" for i in range(times))]
    return [sized("_operator.mul", named(a), named(a), name=b) for a, b in itertools.pairwise(names)]


GROWING: dict[str, list[dict[str, Any]]] = {
    "shift": [sized("_operator.lshift", {"as_int": 1}, {"as_int": 1 << 40})],
    "shift of a size": [sized("_operator.lshift", named("size"), {"as_int": 1 << 40})],
    "shift by a size": [sized("_operator.lshift", {"as_int": 1}, named("size"))],
    "power": [sized("_operator.pow", {"as_int": 10}, {"as_int": 10**9})],
    "power of a size": [sized("_operator.pow", named("size"), {"as_sym_int": {"as_int": 10**9}})],
    "power by a size": [sized("_operator.pow", {"as_int": 10}, named("size"))],
    "squares": squares(40),
}
SOBER: dict[str, list[dict[str, Any]]] = {
    "square": [sized("_operator.pow", named("size"), {"as_int": 2})],
    "shift": [sized("_operator.lshift", named("size"), {"as_int": 3})],
    "squares": squares(3),
}


def with_sizes(sound: Path, path: Path, nodes: list[dict[str, Any]]) -> Path:
    """The sound file with more nodes that compute sizes, out of the one that it has."""
    clean = archives.read(sound)
    records = {entry.name.partition("/")[2]: entry.content for entry in clean}

    def change(document: Any) -> None:
        graph = document["graph_module"]["graph"]
        place = next(i for i, node in enumerate(graph["nodes"]) if "sym_size" in node["target"])
        size = graph["nodes"][place]["outputs"][0]["as_sym_int"]["as_name"]
        graph["nodes"][place + 1 : place + 1] = json.loads(json.dumps(nodes).replace('"size"', json.dumps(size)))
        graph["sym_int_values"].update((node["name"], graph["sym_int_values"][size]) for node in nodes)

    evil = [Entry(f"model/{name}", data) for name, data in edited(records, PROGRAM, change).items()]
    return archives.write(path, replaced(clean, evil)[0])


@pytest.mark.parametrize("kind", GROWING)
def test_numbers_of_absurd_length_are_not_computed(kind: str, sound: Path, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="absurd length"):
        assay.load(with_sizes(sound, tmp_path / "m.pt2", GROWING[kind]))


@pytest.mark.parametrize("kind", SOBER)
def test_usual_arithmetic_on_sizes_is_taken(kind: str, sound: Path, tmp_path: Path) -> None:
    assert load_or_refuse(with_sizes(sound, tmp_path / "m.pt2", SOBER[kind])) is None


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


# --- texts


def reachable(kind: Any, found: set[Any]) -> set[Any]:
    """The classes of torch's schema that a program or a configuration of tensors may hold."""
    for part in typing.get_args(kind) or (kind,):
        if dataclasses.is_dataclass(part) and part not in found:
            found.add(part)
            for hint in typing.get_type_hints(part, globalns=dict(vars(schema))).values():
                reachable(hint, found)
        elif typing.get_args(part):
            reachable(part, found)
    return found


def has_texts(hint: Any) -> bool:
    return hint is str or any(map(has_texts, typing.get_args(hint)))


def test_every_text_of_torchs_schema_has_a_rule() -> None:
    kinds = reachable(schema.ExportedProgram, reachable(schema.PayloadConfig, set()))
    assert len(kinds) > 30
    texts = {
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, hint in typing.get_type_hints(kind, globalns=dict(vars(schema))).items()
        if name in {field.name for field in dataclasses.fields(kind)} and has_texts(hint)
    }
    assert texts == {place for place in TEXTS if place.count(".") == 1} | LEFT_OUT
    assert set(KEPT) <= texts
    assert issubclass(schema.Argument, union._Union)


@pytest.mark.parametrize(
    "text",
    [
        "s0",
        "s0 + 2*u1 - 3",
        "Symbol('s77', positive=True, integer=True)",
        "Mul(Integer(2), Pow(Symbol('s0', integer=True), Integer(2)))",
        "Max(1, FloorDiv(s0, 4)) % 3",
        "Eq(PythonMod(s0, 2), 0)",
        "-s0 < int_oo",
        "s0**-1",
    ],
)
def test_arithmetic_is_taken(text: str) -> None:
    assert plain_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "__import__('os')",
        "s0.__class__",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "Symbol('__import__(1)')",
        "Symbol('s0', evil=__import__('os'))",
        "Symbol(Symbol('s0'))",
        "f'{s0}'",
        "s0 if s1 else s2",
        "9**9**9**9",
        "Pow(Pow(Pow(10, 500), 500), 500)",
        "Pow(2, s0)",
        "2**-(10**9)",
        "1 << 99999999999",
        "10**400*" * 20 + "10**400",
        "(" * 5000 + "1" + ")" * 5000,
        "-" * 9000 + "1",
        "s0+" * 9000 + "1",
        "s１",
        "eval(1)",
        "Integer",
        "'s0'",
        "1j",
        "...",
    ],
)
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    assert plain_arithmetic(text) is None
