"""Quantised blocks have the values that another reader gives them, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from assay.ops.block_formats import BLOCK_FORMATS


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_values_are_those_of_another_reader(name: str) -> None:
    """For any bytes: scales are infinite or NaN now and then."""
    form, kind = BLOCK_FORMATS[name], GGMLQuantizationType[name]
    assert (form.code, GGML_QUANT_SIZES[kind]) == (kind.value, (form.elements, form.block_bytes))
    packed = np.random.default_rng(0).integers(0, 256, (7, 11, 13 * form.block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = dequantize(packed, kind)
    found = form.dequantized(packed)
    assert found.dtype == np.float32
    assert not np.isfinite(found).all()
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_no_rows_have_no_values() -> None:
    for form in BLOCK_FORMATS.values():
        assert form.dequantized(np.zeros((0, 2 * form.block_bytes), np.uint8)).shape == (0, 2 * form.elements)


def test_rows_are_whole_blocks() -> None:
    assert BLOCK_FORMATS["Q6_K"].bytes_of(512) == 420
    with pytest.raises(ValueError, match="no whole blocks of 256"):
        BLOCK_FORMATS["Q6_K"].bytes_of(300)
