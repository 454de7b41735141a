"""Parameters are kept in another form beside their own only where there is room for both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from assay import memory
from assay.memory import free_memory, with_room
from assay.runtime import pipeline
from assay.runtime.torch.graphs import recording

SIZES = {3: 100, 1: 10, 4: 0, 2: 90}


@pytest.mark.parametrize(
    ("free", "kept"), [(None, [3, 1, 4, 2]), (400, [3, 1, 4, 2]), (399, [1, 4, 2]), (199, [1, 4]), (0, [4])]
)
def test_the_smallest_are_kept_first(free: int | None, kept: list[int]) -> None:
    assert with_room(SIZES, free) == kept


def test_a_container_leaves_less_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    monkeypatch.setattr(memory, "_of_machine", lambda: 9000)
    assert free_memory() == 9000
    (tmp_path / "memory.current").write_text("3000\n")
    for most, left in (("max", 9000), ("5000", 2000), ("1000", 0), ("90000", 9000)):
        (tmp_path / "memory.max").write_text(f"{most}\n")
        assert free_memory() == left
    (tmp_path / "memory.stat").write_text("anon 7\nactive_file 200\ninactive_file 300\n")  # given up when asked for
    (tmp_path / "memory.max").write_text("5000\n")
    assert free_memory() == 2500


class Network(nn.Module):
    """A convolution, a norm, and two products of which one has a large weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.wide, self.thin = nn.Linear(8 * 64, 700), nn.Linear(700, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.thin(self.wide(self.norm(self.conv(x)).relu().flatten(1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("free", "packed"), [(1 << 40, 3), (1 << 20, 2), (0, 0)])
def test_what_has_no_room_is_read_as_it_lies(
    free: int, packed: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(pipeline, "free_memory", lambda: free)
    model, x = Network().eval().to(dtype), torch.randn(2, 3, 8, 8).to(dtype)
    quick = torch.compile(model, backend="assay", options={"target": "cpu", "frozen": True})
    with recording() as seen, torch.no_grad():
        if packed < 3:
            with pytest.warns(RuntimeWarning, match="are read as they lie"):
                found = quick(x)
        else:
            found = quick(x)
        torch.testing.assert_close(found, model(x), rtol=0.05 if dtype is torch.bfloat16 else 1e-4, atol=1e-2)
    (graph,) = seen
    nodes = () if graph.prelude is None else graph.prelude.plan.graph.nodes
    assert sum(node.op == "cpu.pack_panels" for node in nodes) == packed
    assert {each.target for each in graph.program.plan.placements} == {"cpu"}
