"""RNN, GRU and LSTM in every variant, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontends.onnx.peer import Case, assert_agreement, expected

LENGTH, BATCH, SIZE, HIDDEN = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def layer(
    op: str,
    *,
    direction: str = "forward",
    length: int = LENGTH,
    bias: bool = True,
    lengths: Any = None,
    initial: bool = False,
    peepholes: bool = False,
    opset: int = 20,
    **attrs: Any,
) -> Case:
    rng = np.random.default_rng(7)
    d, g = DIRECTIONS[direction], GATES[op]

    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, size=shape).astype(np.float32)

    states = (d, BATCH, HIDDEN)
    inputs: list[Any] = [draw(length, BATCH, SIZE), draw(d, g * HIDDEN, SIZE), draw(d, g * HIDDEN, HIDDEN)]
    inputs.append(draw(d, 2 * g * HIDDEN) if bias else None)
    inputs.append(None if lengths is None else np.array(lengths, np.int32))
    inputs.append(draw(*states) if initial else None)
    if op == "LSTM":
        inputs += [draw(*states) if initial else None, draw(d, 3 * HIDDEN) if peepholes else None]
    given = {"hidden_size": HIDDEN, "direction": direction, **attrs}
    return Case(op, inputs, given, outputs=3 if op == "LSTM" else 2, opset=opset, name=f"{direction}, {attrs}")


def cases() -> list[Case]:
    rows: list[Case] = []
    for op in GATES:
        for direction in DIRECTIONS:
            rows.append(layer(op, direction=direction))
            rows.append(layer(op, direction=direction, lengths=[5, 2, 3], initial=True))
            rows.append(layer(op, direction=direction, length=12, lengths=[12, 1, 7], opset=7))
        rows.append(layer(op, bias=False, length=1, opset=14))
        rows.append(layer(op, clip=0.3))
        f = FUNCTIONS[op]
        rows.append(layer(op, activations=["Softplus", "Softsign", "Relu"][:f]))
        steep = [0.3, 0.7, 0.05][:f]
        rows.append(layer(op, activations=["HardSigmoid", "Elu", "LeakyRelu"][:f], activation_alpha=steep))
        rows.append(
            layer(
                op,
                activations=["ScaledTanh", "HardSigmoid", "Affine"][:f],
                activation_alpha=[0.8, 0.3, 0.7][:f],
                activation_beta=[0.5, 0.4, 0.1][:f],
            )
        )
        rows.append(
            layer(
                op,
                direction="bidirectional",
                activations=["Sigmoid", "Tanh", "Tanh"][:f] + ["HardSigmoid", "Relu", "Sigmoid"][:f],
                activation_alpha=[0.25],
                activation_beta=[0.45],
            )
        )
    rows += [
        layer("GRU", linear_before_reset=1),
        layer("GRU", linear_before_reset=1, direction="bidirectional", lengths=[1, 5, 4], initial=True),
        layer("LSTM", peepholes=True, initial=True),
        layer("LSTM", peepholes=True, direction="bidirectional", lengths=[2, 5, 4]),
        layer("LSTM", input_forget=1),
        layer("LSTM", peepholes=True, input_forget=1, clip=0.4, initial=True),
    ]
    return rows


@pytest.mark.parametrize("case", cases(), ids=str)
def test_agrees_with_onnxruntime(case: Case) -> None:
    assert_agreement(case)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_batch_first_is_the_same_with_axes_moved(op: str, direction: str) -> None:
    """ONNX Runtime does not take layout=1."""
    case = layer(op, direction=direction, initial=True, lengths=[5, 2, 3])
    hidden, *last = expected(case)
    moved = [x.swapaxes(0, 1) if i in (0, 5, 6) and x is not None else x for i, x in enumerate(case.inputs)]
    turned = case._replace(inputs=moved, attrs={**case.attrs, "layout": 1})
    assert_agreement(turned, [hidden.transpose(2, 0, 1, 3), *(x.swapaxes(0, 1) for x in last)])
