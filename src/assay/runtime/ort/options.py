"""`RunOptions`, and ONNX Runtime's part of `SessionOptions`: attributes that take values of their own kind alone."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any

from assay.errors import BadArgument, RunStopped, Unsupported
from assay.ir.dtypes import Array
from assay.runtime.ort.edits import Edits
from assay.runtime.ort.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from assay.runtime.ort.errors import Misfit, MissingEntry
from assay.runtime.ort.names import CLASSES
from assay.runtime.ort.providers import target_of
from assay.runtime.ort.refused import refuse, refused_method
from assay.runtime.ort.values import OrtValue
from assay.targets.budget import Budget

_ONLY = {
    "session.load_model_format": ("", "ONNX"),
    "session.model_external_initializers_file_folder_path": ("",),
    "session.save_model_format": ("", "ONNX"),
    "session.set_denormal_as_zero": ("0",),
}
"""Configuration entries that would change what is read, computed or written, with the values that can be had."""


@dataclass(slots=True, kw_only=True)
class _Configured:
    """Checked attributes, and configuration entries by key."""

    _entries: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, _fitted(name, value, *_kinds(type(self)).get(name, ())))

    def _add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadArgument(f"a configuration entry is two strings, got {key!r}: {value!r}")
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise MissingEntry(f"there is no configuration entry '{key}'")
        return self._entries[key]


@cache
def _kinds(owner: type) -> dict[str, tuple[type, ...]]:
    """The kinds of the attributes: those of their defaults, and what else their fields say."""
    return {each.name: (type(_default(each)), *each.metadata.get("or", ())) for each in fields(owner)}


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _fitted(name: str, value: Any, kind: type | None = None, *others: type) -> Any:
    """`value` as the attribute `name` keeps it; BadArgument if it is of no such kind. Enumerations may be foreign."""
    if kind is None or (isinstance(value, (kind, *others)) and kind is not int):
        return value
    try:
        return kind[value.name] if issubclass(kind, Enum) else _CONVERSIONS[kind](value)
    except (TypeError, KeyError, AttributeError):
        raise BadArgument(f"{name} takes a value of the kind {kind.__name__}, got {value!r}") from None


_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    bool: lambda value: bool(operator.index(value)),
    int: operator.index,
    float: lambda value: value / 1,
    str: lambda value: os.fsdecode(value),
    tuple: lambda value: _members(value),
}
"""What fits an attribute of a kind although it is of another: numbers of NumPy's, paths, lists."""


def _members(value: Any) -> tuple[Any, ...]:
    """The members of a collection; a text is one thing and none."""
    if isinstance(value, str):
        raise TypeError
    return tuple(value)


@dataclass(slots=True, kw_only=True)
class OrtSessionOptions(_Configured):
    """How a session works, in the words of ONNX Runtime; docs/onnxruntime.md says what each means here."""

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    _providers: list[str] = field(default_factory=list[str], init=False, repr=False)
    _sizes: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False)
    _denoted: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False)
    _initializers: dict[str, Array] = field(default_factory=dict[str, Array], init=False, repr=False)

    @property
    def optimized_model_filepath(self) -> str:
        """Always empty: setting it to anything else raises."""
        return ""

    @optimized_model_filepath.setter
    def optimized_model_filepath(self, path: str) -> None:
        if path:
            refuse("SessionOptions.optimized_model_filepath", CLASSES["SessionOptions"]["optimized_model_filepath"])

    @property
    def edits(self) -> Edits:
        """What is to be changed of the model before it is read."""
        return Edits(dict(self._sizes), dict(self._denoted), dict(self._initializers))

    @property
    def providers(self) -> Sequence[str]:
        """The providers that were added."""
        return tuple(self._providers)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; Unsupported if it asks for something that would change results and cannot be done."""
        _check_entry(key, value)
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The entry of this key; a RuntimeError if it was not added."""
        return self._get(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """The symbolic dim `name` of the model is `size`."""
        self._sizes[name] = _size(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """The dims of the model that are denoted so are `size`."""
        self._denoted[denotation] = _size(size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """The initializer `name` of the model has this value."""
        if not isinstance(value, OrtValue):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misfit(f"an initializer is an OrtValue, got {type(value).__name__}")
        self._initializers[name] = value.numpy()

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """As `add_initializer`, for several."""
        if len(names) != len(values):
            raise BadArgument(f"{len(names)} names for {len(values)} initializers")
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_provider(self, name: str, options: Mapping[str, str] | None = None) -> None:
        """Use this provider, after those that were added before."""
        target_of([name], missing_is_error=True)
        self._providers.append(name)

    def has_providers(self) -> bool:
        """Whether a provider was added."""
        return bool(self._providers)

    def clear_ep_context_data_read_func(self) -> None:
        """Does nothing: there is no such function."""

    add_external_initializers_from_files_in_memory = refused_method(
        "SessionOptions", "add_external_initializers_from_files_in_memory"
    )
    add_provider_for_devices = refused_method("SessionOptions", "add_provider_for_devices")
    register_custom_ops_library = refused_method("SessionOptions", "register_custom_ops_library")
    set_ep_context_data_read_func = refused_method("SessionOptions", "set_ep_context_data_read_func")
    set_load_cancellation_flag = refused_method("SessionOptions", "set_load_cancellation_flag")
    set_provider_selection_policy = refused_method("SessionOptions", "set_provider_selection_policy")
    set_provider_selection_policy_delegate = refused_method("SessionOptions", "set_provider_selection_policy_delegate")


def _check_entry(key: str, value: str) -> None:
    allowed = _ONLY.get(key)
    if allowed is not None and value not in allowed:
        raise Unsupported(f"the configuration entry '{key}' cannot be '{value}' here")


def _size(size: int) -> int:
    if size < 0:
        raise BadArgument(f"a dim cannot have the size {size}")
    return operator.index(size)


@dataclass(slots=True, kw_only=True)
class RunOptions(_Configured):
    """How one run works. Setting `terminate` from another thread stops it.

    `time_limit` in seconds and `memory_limit` in bytes are Assay's own: what a run may take, 0 for what it likes.
    """

    _budget: Budget = field(default_factory=Budget, init=False, repr=False)
    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    time_limit: float = 0.0
    memory_limit: int = 0

    def __setattr__(self, name: str, value: Any) -> None:
        _Configured.__setattr__(self, name, value)
        if name == "terminate":
            (self._budget.cancel if self.terminate else self._budget.reset)()

    def budget(self) -> Budget:
        """What a run may take, and the flag that stops it."""
        self._budget.limit(self.time_limit or None, self.memory_limit or None)
        return self._budget

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry of this key; a RuntimeError if it was not added."""
        return self._get(key)

    add_active_adapter = refused_method("RunOptions", "add_active_adapter")


def budget_of(options: Any) -> Budget | None:
    """What a run with these options may take: RunOptions, None, or ONNX Runtime's own, which are looked at once.

    RunStopped if those say that the run is to end.
    """
    if isinstance(options, RunOptions):
        return options.budget()
    if getattr(options, "terminate", False):
        raise RunStopped("the run was told to stop")
    return None


def foreign_fields(options: Any) -> dict[str, Any]:
    """The attributes of a SessionOptions that ONNX Runtime itself made, by name; BadArgument for anything else."""
    names = [each.name for each in fields(OrtSessionOptions) if each.init]
    if not all(hasattr(options, name) for name in names):
        raise BadArgument(f"{type(options).__name__} is no SessionOptions", hint="give assay.SessionOptions()")
    if options.has_providers():
        raise Unsupported(
            "the providers in ONNX Runtime's own SessionOptions cannot be read", hint="give `providers` to the session"
        )
    OrtSessionOptions().optimized_model_filepath = options.optimized_model_filepath
    for key, value in _foreign_entries(options):
        _check_entry(key, value)
    return {name: getattr(options, name) for name in names}


def _foreign_entries(options: Any) -> Iterator[tuple[str, str]]:
    """The entries that matter here; the others cannot be listed."""
    for key in _ONLY:
        with contextlib.suppress(RuntimeError):
            yield key, options.get_session_config_entry(key)
