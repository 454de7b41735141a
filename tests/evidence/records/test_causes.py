"""Messages are told in the same words each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.evidence.records.causes import normalised

SAME = {
    "numbers": ("expected 3 rows, got -4.5e-07", "expected # rows, got #"),
    "versions and ends of sentences": (
        "torch 2.13.0 has no such op. It failed 3.",
        "torch # has no such op. It failed #.",
    ),
    "addresses": ("<Thing object at 0x7f3a00ff12> died", "<Thing object at #> died"),
    "temporary paths": ("no file '/tmp/assay-x1/seg_3/a.so': gone", "no file '#': gone"),
    "other temporary paths": ("/var/folders/z9/T/k.c:12: bad", "#:#: bad"),
    "UUIDs": ("job 123e4567-e89b-12d3-a456-426614174000 lost", "job # lost"),
    "hashes": ("kernel 3fa9c1e0b7d2 is gone", "kernel # is gone"),
    "shapes": ("1x3x224x224 into [1, 3, 224]", "#x#x#x# into [#, #, #]"),
    "dtypes and ops stay": (
        "conv2d: f32 and torch.int64, float8_e4m3fn, uint8, u8, log2, x86",
        "conv2d: f32 and torch.int64, float8_e4m3fn, uint8, u8, log2, x86",
    ),
    "counted names": ("arg12_1 + add_17 = getitem_3, primals_4", "arg#_# + add_# = getitem_#, primals_#"),
    "symbols": ("s77 != u0 and u12", "s# != u# and u#"),
    "units": ("after 12ms and 4GiB", "after #ms and #GiB"),
    "differences": ("a-1 and (2)-3", "a-# and (#)-#"),
    "white space": ("  two\n   lines\t1 ", "two lines #"),
}


@pytest.mark.parametrize("kind", SAME)
def test_what_changes_from_run_to_run_becomes_a_mark(kind: str) -> None:
    given_text, wanted = SAME[kind]
    assert normalised(given_text) == wanted


def test_different_causes_stay_different() -> None:
    messages = ["expected UInt8, got Float32", "expected UInt32, got Float32", "expected f16, got Float32"]
    assert len({normalised(message) for message in messages}) == 3


@given(st.text(alphabet="ab xX#-_.e0123456789/tmp:[]()", max_size=40))
def test_what_is_normalised_stays_as_it_is(text: str) -> None:
    once = normalised(text)
    assert normalised(once) == once


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_one_mark(whole: int, part: float) -> None:
    assert normalised(f"got {whole} and {part!r}") == "got # and #"
