"""Every model of the zoo: it serves every row that it must, can be built in both sizes, and runs in the small one."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from PIL import Image
from torch.utils._pytree import tree_leaves
from torchvision import ops

from assay.errors import NotFound
from assay.zoo.files import package_file
from assay.zoo.torch import MODELS, NAMES, transformers
from assay.zoo.torch.model import Model, fill, mean_square, without_initial_weights
from assay.zoo.torch.torchvision import by_place

LEAST, MOST = 1e-3, 1e4
"""What the largest output is between, so that comparing outputs means something."""
BF16 = {"Falcon": 6.9e9, "Llama": 6.7e9, "musicgen-stereo-large": 3.4e9}
"""About how many parameters the models have that the table gives no count for."""


class Row(NamedTuple):
    """One line of rows.csv, which lists every model and mode that the zoo must have."""

    name: str
    mode: str
    library: str
    parameters: str
    inputs: str

    def calls(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name (empty where the call is positional), dtype and shape of each input."""
        found = re.findall(r"(?:(\w+)=)?(\w+)\[([\d, ]*)\]", self.inputs)
        return [(name, dtype, tuple(map(int, shape.split(", "))) if shape else ()) for name, dtype, shape in found]


def rows() -> Iterator[Row]:
    with Path(__file__).with_name("rows.csv").open(newline="") as file:
        yield from (Row(**row) for row in csv.DictReader(file))


ROWS = list(rows())
TRAINED = {name: model for name, model in MODELS.items() if "train" in model.modes}
by_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def outputs_of(module: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [leaf for leaf in tree_leaves(module(**inputs)) if isinstance(leaf, torch.Tensor)]


def sensitive(module: Any, model: Model, outputs: list[torch.Tensor]) -> bool:
    """Whether other inputs change the outputs clearly: what is hardly changed would hide a wrong layer."""
    with torch.no_grad():
        others = outputs_of(module, model.example(module, seed=5))
    floats = [each for each in others if each.is_floating_point()]
    pairs = [pair for pair in zip(outputs, floats, strict=True) if pair[0].shape == pair[1].shape]
    change = max(float((one - other).abs().max() / one.abs().max()) for one, other in pairs if one.numel())
    return change > 1e-3


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_there_are_all_rows() -> None:
    assert len(ROWS) == 132
    assert len({row.name for row in ROWS}) == 131
    assert not {model.name: model.unavailable for model in MODELS.values() if model.unavailable}
    assert sum(1 + len(model.aliases) for model in MODELS.values()) == len(NAMES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name} {row.mode}")
def test_every_row_is_declared(row: Row) -> None:
    model = NAMES[row.name]
    assert row.mode in model.modes
    assert model.library == row.library
    assert model.full_dtype == ("f32" if row.parameters else "bf16")
    assert model.count == int(row.parameters) if row.parameters else abs(model.count / BF16[row.name] - 1) < 0.05
    shapes = model.shapes("full", mode=row.mode)  # pyright: ignore[reportArgumentType]
    calls = row.calls()
    if calls:
        assert list(shapes.values()) == [shape for _, _, shape in calls]
        assert [name or given for (name, _, _), given in zip(calls, shapes, strict=True)] == list(shapes)


@by_model
def test_the_full_variant_has_its_size_and_takes_its_inputs(model: Model) -> None:
    model.empty("small")  # leaves nothing behind in the library
    module = model.empty("full")
    assert sum(parameter.numel() for parameter in module.parameters()) == model.parameters("full")
    wanted = torch.bfloat16 if model.full_dtype == "bf16" else torch.float32
    assert {parameter.dtype for parameter in module.parameters()} == {wanted}
    example = model.example(module, size="full")
    assert {name: tuple(value.shape) for name, value in example.items()} == model.shapes("full")
    for row in ROWS:
        if NAMES[row.name] is model and row.mode == "eval" and row.inputs:
            dtypes = [f"{value.dtype}".removeprefix("torch.") for value in example.values()]
            assert dtypes == [dtype for _, dtype, _ in row.calls()]


@by_model
def test_the_small_variant_runs(model: Model) -> None:
    module = model.build()
    assert not module.training
    assert model.parameters("small") < 13e6
    inputs = model.example(module)
    with torch.no_grad():
        first, second = outputs_of(module, inputs), outputs_of(module, inputs)
    assert all(map(torch.equal, first, second))
    floats = [each for each in first if each.is_floating_point()]
    assert floats
    assert all(each.isfinite().all() for each in floats)
    assert LEAST < max(float(each.abs().max()) for each in floats if each.numel()) < MOST
    assert sensitive(module, model, floats)


@by_model
def test_equal_seeds_give_equal_weights_and_inputs(model: Model) -> None:
    one, two, other = model.build(seed=3), model.build(seed=3), model.build(seed=4)
    assert one.state_dict().keys() == two.state_dict().keys()
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    same, more = model.example(one, seed=1), model.example(two, seed=1)
    assert all(map(torch.equal, same.values(), more.values()))
    assert any(not torch.equal(a, b) for a, b in zip(same.values(), model.example(one, seed=2).values(), strict=True))


@by_model
def test_buffers_are_those_of_the_usual_constructor(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = dict(model.empty("small").named_buffers())
    monkeypatch.setattr(transformers, "_without_initial_weights", contextlib.nullcontext)
    usual = dict(model.make(model.small).named_buffers())
    assert quick.keys() == usual.keys()
    assert all(torch.equal(quick[name], usual[name]) for name in usual)


@pytest.mark.parametrize(
    "model", [each for each in MODELS.values() if "train" in each.modes], ids=lambda each: each.name
)
def test_training_gives_gradients(model: Model) -> None:
    module = model.build().train()
    torch.manual_seed(0)
    loss = model.loss(module(**model.example(module, mode="train")))
    loss.backward()
    assert loss.isfinite()
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert sum(bool(gradient.any()) for gradient in gradients) > 0.8 * len(gradients) > 0


def test_models_that_do_not_train_say_why() -> None:
    for model in MODELS.values():
        assert "train" in model.modes or model.note


def test_mnist_trains_with_a_batch_of_its_own() -> None:
    model = MODELS["Mnist"]
    module = model.build("full").train()
    inputs = model.example(module, size="full", mode="train")
    assert inputs["x"].shape == (64, 1, 28, 28)
    optimizer = torch.optim.Adadelta(module.parameters(), lr=1.0)
    torch.manual_seed(0)
    losses = list[float]()
    for _ in range(8):
        optimizer.zero_grad()
        loss = model.loss(module(**inputs))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_the_usual_loss_is_a_mean_square() -> None:
    outputs = {"a": torch.tensor([1.0, 3.0]), "b": [torch.tensor([2.0]), torch.tensor([7])], "c": "no tensor"}
    assert float(mean_square(outputs)) == (5 + 4) / 2


def test_large_parameters_are_filled_throughout() -> None:
    module = torch.nn.Linear(2000, 1100, bias=False)
    torch.nn.init.constant_(module.weight, 9.0)
    fill(module, 0, "no such weight")
    weight = module.weight.detach()
    assert float(weight.abs().max()) < 9.0
    assert abs(float(weight.std()) * 2000**0.5 - 1) < 0.01
    assert len(torch.unique(weight, dim=0)) == 1100


def test_constructors_initialise_again_afterwards() -> None:
    with without_initial_weights():
        torch.nn.init.trunc_normal_(one := torch.zeros(3))
    torch.nn.init.trunc_normal_(other := torch.zeros(3))
    assert not one.any()
    assert other.all()


# --- torchvision's nms


BOXES = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 10, 5], [21, 21, 30, 30]])
SCORES = torch.tensor([0.5, 0.9, 0.3, 0.8, 0.7])


@pytest.mark.parametrize(
    ("threshold", "kept"), [(0.0, [1, 4]), (0.4, [1, 3, 4]), (0.7, [1, 3, 4, 0]), (0.9, [1, 3, 4, 0, 2])]
)
def test_boxes_that_a_better_one_overlaps_are_dropped(threshold: float, kept: list[int]) -> None:
    assert ops.nms(BOXES, SCORES, threshold).tolist() == kept


def test_nms_is_an_operator_that_graphs_can_hold() -> None:
    assert torch.ops.torchvision.nms(BOXES, SCORES, 0.4).tolist() == [1, 3, 4]
    assert torch.ops.torchvision.nms(BOXES[:0], SCORES[:0], 0.4).tolist() == []

    class Kept(torch.nn.Module):
        def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return torch.ops.torchvision.nms(boxes, scores, 0.4)

    program = torch.export.export(Kept(), (BOXES, SCORES))
    assert program.module()(BOXES, SCORES).tolist() == [1, 3, 4]


def test_detections_are_compared_by_their_places() -> None:
    """Two detections with nearly equal scores change places; everything else about them must still be the same."""
    boxes = torch.tensor([[0.0, 1, 9, 9], [0, 0, 5, 5], [3, 3, 4, 4]])
    first = {"boxes": boxes, "scores": torch.tensor([0.9, 0.5, 0.5]), "labels": torch.tensor([7, 2, 2])}
    swapped = {name: each[[0, 2, 1]] for name, each in first.items()}
    (one,), (other,) = by_place([first]), by_place([swapped])
    assert one["labels"].tolist() == [2, 2, 7]
    assert one["boxes"].tolist() == boxes[[1, 2, 0]].tolist()
    assert one["ranked_scores"].tolist() == first["scores"].tolist()
    assert all(torch.equal(one[name], other[name]) for name in one)
    wrong = by_place([{**first, "labels": torch.tensor([7, 2, 3])}])[0]
    assert not torch.equal(wrong["labels"], one["labels"])
    unranked = by_place([{name: each.flip(0) for name, each in first.items()}])[0]
    assert not torch.equal(unranked["ranked_scores"], one["ranked_scores"])


# --- trained weights


@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [
        ("MobileNetV2", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("tf_efficientnet_lite0.in1k", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ],
)
def test_trained_networks_see_a_bus(name: str, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
    picture = Image.open(package_file("ultralytics", "assets/bus.jpg")).crop((0, 200, 810, 760)).resize((224, 224))
    pixels = torch.from_numpy(np.asarray(picture, np.float32) / 255)
    image = ((pixels - torch.tensor(mean)) / torch.tensor(deviation)).permute(2, 0, 1)[None]
    with torch.no_grad():
        scores = NAMES[name].trained()(image)
    buses = {654: "minibus", 779: "school bus", 829: "streetcar", 874: "trolleybus"}
    assert set(scores[0].topk(3).indices.tolist()) & buses.keys()


@pytest.mark.parametrize(("name", "top1"), [("mobilenet_v2", 1.0), ("tf_efficientnet_lite0.in1k", 2 / 3)])
def test_trained_networks_know_what_photographs_show(name: str, top1: float) -> None:
    """Cat, espresso and tripod; Lite0 takes the cat for one of another kind, with the right one second."""
    model = NAMES[name]
    assert model.weights is not None
    module, task = model.trained(), model.weights.task
    with torch.no_grad():
        answers = [module(**question) for question in task.questions()]
    assert task.score(answers) == {"top1": top1, "top5": 1.0}
    assert task.score([-answer for answer in answers]) == {"top1": 0.0, "top5": 0.0}


def test_models_without_weights_say_so() -> None:
    with pytest.raises(NotFound, match="no package carries weights of 'BERT'"):
        MODELS["BERT"].trained()
