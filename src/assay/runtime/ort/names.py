"""What became of each public name of ONNX Runtime: done, accepted without a meaning here, or refused when it is used.

Everything derives from this table: the refusals themselves, docs/onnxruntime.md, and the tests.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Standing(Enum):
    """What a name of ONNX Runtime's is here; the value is how the page says it."""

    DONE = "done"
    EMPTY = "accepted, without meaning"
    REFUSED = "raises"


class NameRow(NamedTuple):
    """One name: what it is here, and in a sentence how."""

    standing: Standing
    note: str


def _done(note: str = "as in ONNX Runtime") -> NameRow:
    return NameRow(Standing.DONE, note)


def _empty(note: str) -> NameRow:
    return NameRow(Standing.EMPTY, note)


def _refused(note: str) -> NameRow:
    return NameRow(Standing.REFUSED, note)


_PLANNED = "each program plans its memory as a whole when it is compiled"
_ONE_AFTER_ANOTHER = "nodes run one after the other, each on all threads of its session"
_UNLOGGED = "Assay writes no log; what it has to say are Python's warnings"
_NUMBERS = "the numbers of ONNX Runtime"
_NO_PLUGINS = "execution providers cannot be added; targets are Assay's own"
_NO_ADAPTERS = "LoRA adapters are not applied; merge them into the model"
_NO_SPARSE = "values are dense when a program runs"
_NO_CONTEXT = "there are no models that other compilers made"
_OF_THE_MODEL = "{}; one that the model does not have is warned of"
_ONE_DEVICE = "there is no device but the CPU"

MODULE: dict[str, NameRow] = {
    "AdapterFormat": _refused(_NO_ADAPTERS),
    "ExecutionMode": _done(_NUMBERS),
    "ExecutionOrder": _done(_NUMBERS),
    "GraphOptimizationLevel": _done(_NUMBERS),
    "IOBinding": _done(),
    "InferenceSession": _done("with `explain()` and `observe()` beside"),
    "LoraAdapter": _refused(_NO_ADAPTERS),
    "ModelCompiler": _refused("a session compiles its model when it is made; what it compiled is cached"),
    "ModelMetadata": _done(),
    "NodeArg": _done(),
    "OrtAllocatorType": _done(_NUMBERS),
    "OrtArenaCfg": _empty(_PLANNED),
    "OrtCompileApiFlags": _done(_NUMBERS),
    "OrtDevice": _done("the CPU alone"),
    "OrtDeviceMemoryType": _done(_NUMBERS),
    "OrtDeviceVendorId": _done(_NUMBERS),
    "OrtEpAssignedNode": _refused("`session.explain()` says where each node runs"),
    "OrtEpAssignedSubgraph": _refused("`session.explain()` says where each node runs"),
    "OrtEpContextData": _refused(_NO_CONTEXT),
    "OrtEpContextDataBuffer": _refused(_NO_CONTEXT),
    "OrtEpDevice": _refused(_NO_PLUGINS),
    "OrtExecutionProviderDevicePolicy": _done(_NUMBERS),
    "OrtExternalInitializerInfo": _refused("no model is written with its data elsewhere"),
    "OrtHardwareDevice": _refused(_ONE_DEVICE),
    "OrtHardwareDeviceType": _done(_NUMBERS),
    "OrtMemType": _done(_NUMBERS),
    "OrtMemoryInfo": _empty(_PLANNED),
    "OrtMemoryInfoDeviceType": _done(_NUMBERS),
    "OrtSparseFormat": _done(_NUMBERS),
    "OrtSyncStream": _refused(_ONE_DEVICE),
    "OrtValue": _done("arrays, lists of them and dictionaries"),
    "RunOptions": _done(),
    "SessionIOBinding": _refused("`session.io_binding()` gives an `IOBinding`"),
    "SessionOptions": _done("with Assay's own `target`, `mode`, `decomposed`, `optimize` and `limits` beside"),
    "SparseTensor": _refused(_NO_SPARSE),
    "capi": _done("`capi.onnxruntime_pybind11_state` has the exceptions by name"),
    "copy_tensors": _done(),
    "create_and_register_allocator": _empty(_PLANNED),
    "create_and_register_allocator_v2": _empty(_PLANNED),
    "cuda_version": _done("always empty"),
    "disable_telemetry_events": _empty("Assay sends nothing to anybody"),
    "enable_telemetry_events": _empty("Assay sends nothing to anybody"),
    "get_all_providers": _done("every provider name that is understood, those of other hardware too"),
    "get_available_providers": _done("`CPUExecutionProvider` is the target `cpu`; the oracle is `reference`"),
    "get_build_info": _done(),
    "get_device": _done("always `CPU`"),
    "get_ep_devices": _refused(_NO_PLUGINS),
    "get_version_string": _done("Assay's version"),
    "has_collective_ops": _done("there are none"),
    "import_capi_exception": _done("always None"),
    "package_name": _done("`assay`"),
    "preload_dlls": _empty("there are no such libraries"),
    "print_debug_info": _done(),
    "register_execution_provider_library": _refused(_NO_PLUGINS),
    "set_default_logger_severity": _empty(_UNLOGGED),
    "set_default_logger_verbosity": _empty(_UNLOGGED),
    "set_global_thread_pool_sizes": _refused("a session has its threads: set `SessionOptions.intra_op_num_threads`"),
    "set_seed": _done("random ops without a seed of their own draw the same after it; the numbers are Assay's"),
    "unregister_execution_provider_library": _refused(_NO_PLUGINS),
    "version": _done("Assay's version"),
}

SESSION_OPTIONS: dict[str, NameRow] = {
    "add_external_initializers": _done("as `add_initializer`; the file that held them need not exist"),
    "add_external_initializers_from_files_in_memory": _refused("load the model by its path, its data beside it"),
    "add_free_dimension_override_by_denotation": _done(_OF_THE_MODEL.format("fixes a dim")),
    "add_free_dimension_override_by_name": _done(_OF_THE_MODEL.format("fixes a dim")),
    "add_initializer": _done(_OF_THE_MODEL.format("gives an initializer another value")),
    "add_provider": _done("those of `get_available_providers()`"),
    "add_provider_for_devices": _refused(_NO_PLUGINS),
    "add_session_config_entry": _done(
        "kept for `get_session_config_entry`; entries tune ONNX Runtime's own parts and mean nothing here. One that "
        "would change results raises"
    ),
    "clear_ep_context_data_read_func": _empty(_NO_CONTEXT),
    "enable_cpu_mem_arena": _empty(_PLANNED),
    "enable_mem_pattern": _empty(_PLANNED),
    "enable_mem_reuse": _empty(_PLANNED),
    "enable_profiling": _done("writes a Chrome trace; every node is computed by itself then, so nothing is fused"),
    "execution_mode": _empty(_ONE_AFTER_ANOTHER),
    "execution_order": _empty(_ONE_AFTER_ANOTHER),
    "get_session_config_entry": _done(),
    "graph_optimization_level": _done("`ORT_DISABLE_ALL` is `optimize=False`; the others are all the same"),
    "has_providers": _done(),
    "inter_op_num_threads": _empty(_ONE_AFTER_ANOTHER),
    "intra_op_num_threads": _done("threads of the session's runs; 0 or less: `OMP_NUM_THREADS`, else all cores"),
    "log_severity_level": _empty(_UNLOGGED),
    "log_verbosity_level": _empty(_UNLOGGED),
    "logid": _empty(_UNLOGGED),
    "optimized_model_filepath": _refused("no models are written; `assay inspect MODEL --level core` shows the graph"),
    "profile_file_prefix": _done(),
    "register_custom_ops_library": _refused("compiled ops of others cannot be called; give the op as an ONNX function"),
    "set_ep_context_data_read_func": _refused(_NO_CONTEXT),
    "set_load_cancellation_flag": _refused("loading cannot be stopped"),
    "set_provider_selection_policy": _refused("name the provider"),
    "set_provider_selection_policy_delegate": _refused("name the provider"),
    "use_deterministic_compute": _empty("results are always the same, whatever the number of threads"),
    "use_per_session_threads": _empty("all sessions share one pool, of which each uses as many threads as it may"),
}

RUN_OPTIONS: dict[str, NameRow] = {
    "add_active_adapter": _refused(_NO_ADAPTERS),
    "add_run_config_entry": _empty("kept for `get_run_config_entry`; entries tune ONNX Runtime's own parts"),
    "get_run_config_entry": _done(),
    "log_severity_level": _empty(_UNLOGGED),
    "log_verbosity_level": _empty(_UNLOGGED),
    "logid": _empty(_UNLOGGED),
    "only_execute_path_to_fetches": _empty("the outputs that are asked for are the same either way"),
    "terminate": _done("stops a run before its next kernel; ONNX Runtime's own `RunOptions` are looked at once"),
}

INFERENCE_SESSION: dict[str, NameRow] = {
    "create_ortvalue_from_shape_and_type": _done(),
    "disable_fallback": _empty("a provider that fails falls back node by node; `explain()` says which and why"),
    "enable_fallback": _empty("a provider that fails falls back node by node; `explain()` says which and why"),
    "end_profiling": _done(),
    "get_input_epdevices": _refused(_NO_PLUGINS),
    "get_input_memory_infos": _done("all in the CPU's memory"),
    "get_inputs": _done(),
    "get_modelmeta": _done(),
    "get_output_memory_infos": _done("all in the CPU's memory"),
    "get_outputs": _done("a dim is given in terms of the inputs' where that is known"),
    "get_overridable_initializers": _done(),
    "get_profiling_start_time_ns": _done(),
    "get_provider_graph_assignment_info": _refused("`session.explain()` says where each node runs"),
    "get_provider_options": _done("providers have no options here"),
    "get_providers": _done(),
    "get_session_options": _done("a copy: changing it changes nothing"),
    "get_tuning_results": _done("there are none"),
    "io_binding": _done(),
    "release_captured_graph": _empty("nothing is captured"),
    "run": _done("also takes Python's numbers, and arrays of other libraries"),
    "run_async": _done("in a thread of its own"),
    "run_with_iobinding": _done(),
    "run_with_ort_values": _done(),
    "run_with_ortvaluevector": _refused("use `run_with_ort_values`"),
    "set_ep_dynamic_options": _empty("providers have no options here"),
    "set_providers": _done(),
    "set_tuning_results": _refused("nothing here is tuned by results"),
}

ORT_VALUE: dict[str, NameRow] = {
    "as_sparse_tensor": _refused(_NO_SPARSE),
    "data_ptr": _done(),
    "data_type": _done(),
    "device_name": _done("always `cpu`"),
    "element_type": _done(),
    "from_dlpack": _done(),
    "has_value": _done(),
    "is_sparse_tensor": _done("never"),
    "is_tensor": _done(),
    "is_tensor_sequence": _done(),
    "numpy": _done("the memory itself"),
    "ort_value_from_sparse_tensor": _refused(_NO_SPARSE),
    "ortvalue_from_numpy": _done("shares the array's memory; other devices than `cpu` raise"),
    "ortvalue_from_numpy_with_onnx_type": _done(),
    "ortvalue_from_shape_and_type": _done(),
    "shape": _done(),
    "tensor_size_in_bytes": _done(),
    "update_inplace": _done("another dtype raises"),
}

IO_BINDING: dict[str, NameRow] = {
    "bind_cpu_input": _done(),
    "bind_input": _done("other devices than `cpu` raise"),
    "bind_ortvalue_input": _done(),
    "bind_ortvalue_output": _done("the result is written into the value's memory"),
    "bind_output": _done("with a pointer, the result is written there; other devices than `cpu` raise"),
    "clear_binding_inputs": _done(),
    "clear_binding_outputs": _done(),
    "copy_outputs_to_cpu": _done(),
    "get_outputs": _done(),
    "get_outputs_as_ortvaluevector": _done("a list"),
    "synchronize_inputs": _empty(_ONE_DEVICE),
    "synchronize_outputs": _empty(_ONE_DEVICE),
}

ORT_DEVICE: dict[str, NameRow] = {
    "device_id": _done(),
    "device_mem_type": _done(),
    "device_type": _done(),
    "device_vendor_id": _done(),
    "make": _done("other devices than `cpu` raise"),
}

MODEL_METADATA: dict[str, NameRow] = {
    name: _done()
    for name in (
        "custom_metadata_map",
        "description",
        "domain",
        "graph_description",
        "graph_name",
        "producer_name",
        "version",
    )
}
NODE_ARG: dict[str, NameRow] = {name: _done() for name in ("name", "shape", "type")}
MEMORY_INFO: dict[str, NameRow] = {
    name: _empty(_PLANNED)
    for name in (
        "allocator_type",
        "create_v2",
        "device_id",
        "device_mem_type",
        "device_vendor_id",
        "mem_type",
        "name",
    )
}
ARENA_CFG: dict[str, NameRow] = {
    name: _empty(_PLANNED)
    for name in (
        "arena_extend_strategy",
        "initial_chunk_size_bytes",
        "initial_growth_chunk_size_bytes",
        "max_dead_bytes_per_chunk",
        "max_mem",
        "max_power_of_two_extend_bytes",
    )
}

CLASSES: dict[str, dict[str, NameRow]] = {
    "InferenceSession": INFERENCE_SESSION,
    "SessionOptions": SESSION_OPTIONS,
    "RunOptions": RUN_OPTIONS,
    "OrtValue": ORT_VALUE,
    "IOBinding": IO_BINDING,
    "OrtDevice": ORT_DEVICE,
    "ModelMetadata": MODEL_METADATA,
    "NodeArg": NODE_ARG,
    "OrtMemoryInfo": MEMORY_INFO,
    "OrtArenaCfg": ARENA_CFG,
}
"""The classes whose names are told one by one."""
