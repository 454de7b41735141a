"""What a run is given: shapes that fitted are remembered, and nothing else gets through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.errors import BadFeed
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import address
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.runtime.feeds import FeedCheck, check_feeds
from assay.runtime.session import Session


def _sum() -> Graph:
    b = Builder()
    n = symbol("n")
    x, y = b.input(TensorType(dtypes.f32, (n, 3))), b.input(TensorType(dtypes.f32, (n, 1)))
    return b.finish("sum", [x, y], [b.add(x, y)], input_names=("x", "y"), output_names=("z",))


def _fed(rows: int, others: int | None = None, dtype: Any = np.float32) -> dict[str, Any]:
    return {"x": np.ones((rows, 3), dtype), "y": np.ones((rows if others is None else others, 1), np.float32)}


BAD = {
    "sizes that differ": _fed(2, 5),
    "a size of an earlier run beside another": {"x": _fed(2)["x"], "y": _fed(5)["y"]},
    "another dtype": _fed(2, dtype=np.float64),
    "another rank": {**_fed(2), "y": np.ones(2, np.float32)},
    "a missing input": {"x": _fed(2)["x"]},
    "another name": {"x": _fed(2)["x"], "w": _fed(2)["y"]},
    "one too many": {**_fed(2), "w": _fed(2)["y"]},
    "nothing": {**_fed(2), "y": None},
    "no dictionary": [_fed(2)["x"], _fed(2)["y"]],
}


@pytest.mark.parametrize("feeds", BAD.values(), ids=list(BAD))
def test_what_does_not_fit_is_refused_as_ever(feeds: Any) -> None:
    graph = _sum()
    check = FeedCheck(graph)
    for rows in (2, 5, 2, 5):
        check(_fed(rows))
    with pytest.raises(BadFeed) as once:
        check_feeds(graph, feeds)
    with pytest.raises(BadFeed) as again:
        check(feeds)
    assert str(again.value) == str(once.value)


def test_arrays_that_fit_are_protected_and_in_order() -> None:
    check = FeedCheck(_sum())
    for rows in (2, 0, 2, 7):
        feeds = _fed(rows)
        turned = dict(reversed(feeds.items()))
        for given in (check(feeds), check(turned), check(feeds)):
            assert [each.shape for each in given] == [(rows, 3), (rows, 1)]
            assert not any(each.flags.writeable for each in given)
            assert all(np.shares_memory(each, mine) for each, mine in zip(given, feeds.values(), strict=True) if rows)
        assert all(array.flags.writeable for array in feeds.values())


def test_numbers_and_lists_are_taken_after_arrays_were() -> None:
    session = Session(_sum())
    first = session.run(_fed(2))["z"]
    second = session.run({"x": [[1, 1, 1], [1, 1, 1]], "y": [[1], [1]]})["z"]
    np.testing.assert_array_equal(first, second)


def test_shapes_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedCheck, "_MOST", 4)
    check = FeedCheck(_sum())
    for rows in range(9):
        assert check(_fed(rows))[0].shape == (rows, 3)
    with pytest.raises(BadFeed):
        check(_fed(8, 7))


@pytest.mark.parametrize("step", [1, 2, -1])
@pytest.mark.parametrize("protected", [False, True])
def test_where_an_array_lies(step: int, protected: bool) -> None:
    for dtype in {each.numpy for each in dtypes.ALL}:
        whole = np.zeros(12, dtype)
        array = whole[3:9:step] if step > 0 else whole[9:3:step]
        array.flags.writeable = not protected
        assert address(array) == array.__array_interface__["data"][0]
    assert address(whole[5:5]) == whole[5:5].__array_interface__["data"][0]


def test_where_a_number_lies_is_asked_of_numpy() -> None:
    number: Any = np.float32(3)
    assert isinstance(address(number), int)
    recarray = np.zeros(3).view(np.recarray)
    assert address(recarray) == recarray.__array_interface__["data"][0]
