"""Models as jobs call them: a session, and what the model keeps between calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import BadFeed
from assay.ir.dims import Dim, symbol_name
from assay.ir.dtypes import Array, is_array
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.targets.budget import Budget

if TYPE_CHECKING:
    from assay.runtime.kept import KeptProgram
    from assay.runtime.options import SessionOptions
    from assay.runtime.session import Session

CACHED_BYTES = 1 << 30
"""The bytes of states that a model keeps for texts that begin alike, unless it is told another limit."""


@dataclass(frozen=True, eq=False)
class ModelState:
    """What a model keeps between calls: tensors by name, as the target left them, and the tokens that led there.
    `given` are inputs that are the same in every call, however many rows it has: what an encoder made of a source."""

    values: Mapping[str, Any]
    tokens: tuple[int, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def nbytes(self) -> int:
        """The bytes that the tensors take."""
        return sum(value.nbytes for value in self.values.values())


class StateCache:
    """States by the tokens that led to them, up to `limit` bytes; those that were not used for longest go first."""

    def __init__(self, limit: int = CACHED_BYTES) -> None:
        self.limit = limit
        self._states: OrderedDict[tuple[int, ...], ModelState] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """The bytes that states take."""
        return sum(state.nbytes for state in self._states.values())

    def put(self, state: ModelState) -> None:
        """Keep a state, in place of those of texts that it continues."""
        for tokens in [each for each in self._states if state.tokens[: len(each)] == each]:
            del self._states[tokens]
        self._states[state.tokens] = state
        while self.nbytes > self.limit:
            self._states.popitem(last=False)

    def longest(self, tokens: Sequence[int]) -> tuple[ModelState, int] | None:
        """The state that shares most tokens with the beginning of a text, and how many these are."""
        shared = {each: _shared(each, tokens) for each in self._states}
        best = max(shared, key=lambda each: shared[each], default=None)
        if best is None or not shared[best]:
            return None
        self._states.move_to_end(best)
        return self._states[best], shared[best]


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts have in common from their beginning."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


@dataclass(frozen=True, eq=False)
class KeptModel:
    """A model whose program was compiled by an earlier process: that, and what makes the graph if it is asked for."""

    program: KeptProgram
    build: Callable[[], Graph]


class JobModel:
    """A model on a target. Inputs that are outputs too, by name, are its state. One program serves all sizes.

    Of a model that was kept, calls run the program, and the session is made when somebody asks for it."""

    def __init__(
        self,
        source: Graph | KeptModel,
        digest: str,
        options: SessionOptions | None = None,
        cached_bytes: int = CACHED_BYTES,
    ) -> None:
        self.digest = digest
        self._kept = source if isinstance(source, KeptModel) else None
        graph = source.program.interface if isinstance(source, KeptModel) else source
        self._session = cache(lambda: _session(source.build() if isinstance(source, KeptModel) else source, options))
        if self._kept is None:
            self._session()
        self.cache = StateCache(cached_bytes)
        self._budget: Budget | None = None
        self._watched: Mapping[str, Callable[[Any], None]] = {}
        kinds = {name: value.type for name, value in zip(graph.input_names, graph.inputs, strict=True)}
        self.states = {
            name: kind for name, kind in kinds.items() if name in graph.output_names and isinstance(kind, TensorType)
        }
        self.inputs = tuple(name for name in kinds if name not in self.states)
        """The inputs that are no state, in order."""
        self.outputs = tuple(graph.output_names)
        first = kinds[self.inputs[0]] if self.inputs else None
        self._batch: Dim | None = first.shape[0] if isinstance(first, TensorType) and first.shape else None

    @property
    def session(self) -> Session:
        """The model's session."""
        return self._session()

    @property
    def is_sliced(self) -> bool:
        """Whether its state can be cut back to fewer tokens: every part has one axis that grows with them."""
        return bool(self.states) and all(len(self._growing(kind)) == 1 for kind in self.states.values())

    def for_run(self, budget: Budget | None, watched: Mapping[str, Callable[[Any], None]]) -> JobModel:
        """The same model, whose calls have this budget and tell of values in it by their names."""
        if watched:
            self.session.observable(watched)
        mine = copy(self)
        mine._budget, mine._watched = budget, watched
        return mine

    def begin(self, batch: int = 1) -> ModelState:
        """The state before the first token: nothing along axes that grow, zeros elsewhere."""
        return ModelState(
            {name: np.zeros(self._first(kind, batch), kind.dtype.numpy) for name, kind in self.states.items()}
        )

    def begin_with(self, encoder: JobModel, *given: Any) -> ModelState:
        """The state before the first token, with what an encoder makes of its inputs. BadFeed if it makes nothing that
        the model takes."""
        found = encoder._run(encoder._feeds(given), keep=[name for name in encoder.outputs if name in self.inputs])
        heard = {name: _dense(value) for name, value in found.items() if name in self.inputs}
        if not heard:
            raise BadFeed(f"of what the encoder gives the decoder takes nothing: {', '.join(encoder.outputs)}")
        return ModelState(self.begin().values, given=heard)

    def recall(self, tokens: Sequence[int]) -> ModelState:
        """The state that covers most of a text, but not its last token; the first one if none is known."""
        found = self.cache.longest(tokens[:-1])
        if found is None:
            return self.begin()
        state, shared = found
        if shared == len(state.tokens):
            return state
        return self._cut(state, shared) if self.is_sliced else self.begin()

    def call(self, *given: Any) -> tuple[Any, ...]:
        """The outputs for inputs in their order."""
        return tuple(self._run(self._feeds(given), keep=self.states).values())

    def step(self, state: ModelState, *given: Any) -> tuple[Array, ModelState]:
        """The first output for inputs in their order, and the new state. Of all positions, the last one counts."""
        feeds = {**self._feeds(given, state.given), **state.given, **state.values}
        results = self._run(feeds, keep=self.states)
        logits = next(value for name, value in results.items() if name not in self.states)
        last = logits[:, -1] if logits.ndim == 3 else logits
        tokens = given[0]
        covered = (*state.tokens, *tokens[0].tolist()) if len(tokens) == 1 and not state.given else ()
        renewed = {name: results[name] for name in self.states}
        return last.astype(np.float32, copy=False), ModelState(renewed, covered, state.given)

    def _run(self, feeds: Mapping[str, Any], keep: Collection[str]) -> dict[str, Any]:
        if self._watched:
            for name, value in self.session.observe(feeds, self._watched).items():
                self._watched[name](value)
        program = self.session if self._kept is None else self._kept.program
        return program.run(feeds, keep=keep, budget=self._budget)

    def _feeds(self, given: Sequence[Any], known: Container[str] = ()) -> dict[str, Any]:
        wanted = [name for name in self.inputs if name not in known]
        if len(given) != len(wanted):
            raise BadFeed(f"the model takes {', '.join(wanted)}; it is given {len(given)} inputs")
        return dict(zip(wanted, given, strict=True))

    def _growing(self, kind: TensorType) -> list[int]:
        dims = kind.shape or ()
        return [axis for axis, dim in enumerate(dims) if symbol_name(dim) and dim != self._batch]

    def _first(self, kind: TensorType, batch: int) -> list[int]:
        dims = kind.shape or ()
        return [dim if isinstance(dim, int) else batch if dim == self._batch else 0 for dim in dims]

    def _cut(self, state: ModelState, count: int) -> ModelState:
        """A state as it was after so many tokens."""
        axes = {name: self._growing(kind)[0] for name, kind in self.states.items()}
        parts = {name: _front(state.values[name], axes[name], count) for name in axes}
        return ModelState(parts, state.tokens[:count])


def _session(graph: Graph, options: SessionOptions | None) -> Session:
    # Imported here, since that is the whole compiler.
    from assay.runtime.session import Session

    return Session(graph, options)


def reordered(state: ModelState, rows: Array) -> ModelState:
    """A state whose rows are those of another one, some of them several times. The only row of one stands for all."""
    arrays = {name: np.asarray(value) for name, value in state.values.items()}
    return ModelState(
        {name: array[np.minimum(rows, len(array) - 1)] for name, array in arrays.items()}, given=state.given
    )


def _dense(value: Any) -> Any:
    """A value that many calls read, in the order in which targets read it; on a device it stays as it is."""
    return np.ascontiguousarray(value) if is_array(value) else value


def _front(value: Any, axis: int, count: int) -> Array:
    return np.ascontiguousarray(np.asarray(value)[(slice(None),) * axis + (slice(count),)])
