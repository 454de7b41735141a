"""How right the model of a card is, against what a simulator of the chip measured for the same ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import assay
from assay.ir.dtypes import Array
from assay.targets.ttnn.formats import ROUNDING
from assay.targets.ttnn.library import Library

Op = Callable[[Tensor, Tensor], Tensor]
OPS: Mapping[str, tuple[Op, float, float | None]] = {
    "add": (torch.add, 0.999997, 0.99995),
    "mul": (torch.mul, 0.999997, 0.99995),
    "matmul": (torch.matmul, 0.999985, 0.99983),
    "softmax": (lambda x, y: torch.softmax(x, -1), 0.9996, 0.9995),
    "layer_norm": (lambda x, y: functional.layer_norm(x, x.shape[-1:]), 0.999997, 0.99994),
    "sdpa": (lambda x, y: functional.scaled_dot_product_attention(x, y, y), 0.9997, None),
    "conv": (lambda x, y: functional.conv2d(x, y[:, :1, :3, :3].expand(1, 4, 3, 3)), 0.99995, None),
    "gelu": (lambda x, y: functional.gelu(x), 0.99998, None),
    "tanh": (lambda x, y: torch.tanh(x), 0.99998, None),
    "exp": (lambda x, y: torch.exp(x), 0.99998, None),
    "sigmoid": (lambda x, y: torch.sigmoid(x), 0.99998, None),
    "rsqrt": (lambda x, y: torch.rsqrt(x.abs() + 0.5), 0.99998, None),
}
"""The ops with the simulator's PCC against f64, in bfloat16 and, where it was measured, in bfloat8_b."""
CLOSE = 0.001


class Every(nn.Module):
    """All of the ops on the same two tensors."""

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {name: op(x, y) for name, (op, _, _) in OPS.items()} | {"moved": x.transpose(1, 2).flatten(2)}


def drawn() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn((1, 4, 64, 64), generator=generator) for _ in range(2))
    return x, y


def pcc(found: Any, right: Any) -> float:
    return float(np.corrcoef(np.ravel(found).astype(np.float64), np.ravel(right).astype(np.float64))[0, 1])


@pytest.fixture(scope="module")
def modelled(library: Library) -> Mapping[str, Array]:
    """What the model of a card gives, every op on the card."""
    session = assay.load(torch.export.export(Every(), drawn()), assay.SessionOptions(target="ttnn,cpu"))
    x, y = drawn()
    found = session.run({"x": x.numpy(), "y": y.numpy()})
    assert all(row.target == "ttnn" for row in session.explain().nodes)
    return found


@pytest.mark.parametrize("name", OPS)
def test_ops_in_bfloat16_are_as_right_as_the_chips(modelled: Mapping[str, Array], name: str) -> None:
    op, measured, _ = OPS[name]
    x, y = drawn()
    found = pcc(modelled[name], op(x.double(), y.double()).numpy())
    assert abs(found - measured) < CLOSE
    assert found < 1, "it is rounded"


def test_movement_is_exact(modelled: Mapping[str, Array]) -> None:
    x, _ = drawn()
    np.testing.assert_array_equal(modelled["moved"], x.bfloat16().float().transpose(1, 2).flatten(2).numpy())


@pytest.mark.parametrize("name", [name for name, (_, _, narrow) in OPS.items() if narrow is not None])
def test_ops_between_bfloat8_b_are_as_right_as_the_chips(name: str) -> None:
    """Operands and results rounded as the device model rounds weights."""
    op, _, measured = OPS[name]
    narrow = ROUNDING["bfloat8_b"]
    x, y = drawn()
    given = (torch.from_numpy(narrow(each.numpy())).double() for each in (x, y))
    found = narrow(op(*given).float().numpy())
    assert measured is not None
    assert abs(pcc(found, op(x.double(), y.double()).numpy()) - measured) < CLOSE
