"""`com.microsoft.DynamicQuantizeLSTM` in every variant, against ONNX Runtime.

With one thread ONNX Runtime quantises the hidden states of the batch together, as Assay does; with more, parts of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontends.onnx.peer import Case, assert_agreement, feeds_of, model_of

import assay

LENGTH, BATCH, SIZE, HIDDEN = 5, 3, 4, 6
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def layer(
    *,
    direction: str = "forward",
    length: int = LENGTH,
    signed: bool = False,
    by_channel: bool = False,
    bias: bool = True,
    lengths: Any = None,
    initial: bool = False,
    peepholes: bool = False,
    fed: bool = False,
    **attrs: Any,
) -> Case:
    rng = np.random.default_rng(11)
    d, gates = DIRECTIONS[direction], 4 * HIDDEN

    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, size=shape).astype(np.float32)

    def weights(rows: int) -> Any:
        """Half of the signed range: ONNX Runtime's kernels for u8 × i8 overflow beyond that on many processors."""
        whole = rng.integers(-64, 64, size=(d, rows, gates))
        return whole.astype(np.int8) if signed else (whole + 64).astype(np.uint8)

    def quantization() -> tuple[Any, Any]:
        """ONNX Runtime takes zero points by channel that are zero if signed, all the same if not."""
        shape = (d, gates) if by_channel else (d,)
        zeros = np.zeros(shape, np.int8) if by_channel else np.arange(3, 3 + d, dtype=np.int8).reshape(shape)
        scales = rng.uniform(0.01, 0.03, size=shape).astype(np.float32)
        return scales, zeros if signed else np.full(shape, 61, np.uint8)

    states = (d, BATCH, HIDDEN)
    inputs: list[Any] = [draw(length, BATCH, SIZE), weights(SIZE), weights(HIDDEN)]
    inputs.append(draw(d, 2 * gates) if bias else None)
    inputs.append(None if lengths is None else np.array(lengths, np.int32))
    inputs += [draw(*states) if initial else None, draw(*states) if initial else None]
    inputs.append(draw(d, 3 * HIDDEN) if peepholes else None)
    inputs += [*quantization(), *quantization()]
    given = {"hidden_size": HIDDEN, "direction": direction, **attrs}
    told = f"{direction} {length=} {signed=} {by_channel=} {bias=} {lengths=} {initial=} {peepholes=} {fed=} {attrs}"
    constants = () if fed else (1, 2, 8, 9, 10, 11)
    return Case("DynamicQuantizeLSTM", inputs, given, 3, "com.microsoft", constants=constants, name=told)


def cases() -> list[Case]:
    rows = [
        layer(direction=direction, signed=signed, by_channel=by_channel)
        for direction in DIRECTIONS
        for signed in (False, True)
        for by_channel in (False, True)
    ]
    for direction in DIRECTIONS:
        rows.append(layer(direction=direction, lengths=[5, 2, 3], initial=True))
        rows.append(layer(direction=direction, length=12, lengths=[9, 1, 7], signed=True))
        rows.append(layer(direction=direction, peepholes=True, initial=True, clip=0.4))
    steep: dict[str, Any] = {"activation_alpha": [0.3, 0.7, 0.05], "activation_beta": [0.4]}
    rows += [
        layer(bias=False, length=1),
        layer(clip=0.3),
        layer(fed=True),
        layer(fed=True, signed=True, by_channel=True),
        layer(input_forget=1),
        layer(input_forget=1, peepholes=True, clip=0.4, initial=True, lengths=[2, 5, 4]),
        layer(activations=["Softplus", "Softsign", "Relu"]),
        layer(activations=["HardSigmoid", "Elu", "LeakyRelu"], **steep),
        layer(
            direction="bidirectional",
            activations=["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Relu", "Sigmoid"],
            activation_alpha=[0.25],
            activation_beta=[0.45],
        ),
    ]
    return rows


@pytest.mark.parametrize("case", cases(), ids=str)
def test_agrees_with_onnxruntime(case: Case) -> None:
    assert_agreement(case)


def test_it_runs_in_a_session_on_every_target() -> None:
    case = layer(direction="bidirectional", length=20, lengths=[20, 3, 11], initial=True)
    model = model_of(case).SerializeToString()
    native, oracle = (
        assay.InferenceSession(model, target=target).run(None, feeds_of(case)) for target in ("cpu", "reference")
    )
    for mine, expected in zip(native, oracle, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)
