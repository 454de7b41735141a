"""Hostile `.pt2` files: sizes, bytes and numbers stay within limits."""

from __future__ import annotations

import itertools
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from frontends.torch import archives
from frontends.torch.archives import Entry
from frontends.torch.hostile import (
    PROGRAM,
    WEIGHTS,
    edited,
    load_or_refuse,
    replaced,
)

import assay
from assay.errors import ImportFailed, LimitExceeded

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
