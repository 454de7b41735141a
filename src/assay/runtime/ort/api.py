"""Every public name of ONNX Runtime, under one roof; `assay` offers them as its own."""

from __future__ import annotations

from typing import Any

from assay import capi as capi
from assay.runtime.options import SessionOptions as SessionOptions
from assay.runtime.ort.binding import IOBinding as IOBinding
from assay.runtime.ort.describe import ModelMetadata as ModelMetadata
from assay.runtime.ort.describe import NodeArg as NodeArg
from assay.runtime.ort.enums import ExecutionMode as ExecutionMode
from assay.runtime.ort.enums import ExecutionOrder as ExecutionOrder
from assay.runtime.ort.enums import GraphOptimizationLevel as GraphOptimizationLevel
from assay.runtime.ort.enums import OrtAllocatorType as OrtAllocatorType
from assay.runtime.ort.enums import OrtCompileApiFlags as OrtCompileApiFlags
from assay.runtime.ort.enums import OrtDeviceMemoryType as OrtDeviceMemoryType
from assay.runtime.ort.enums import OrtDeviceVendorId as OrtDeviceVendorId
from assay.runtime.ort.enums import OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy
from assay.runtime.ort.enums import OrtHardwareDeviceType as OrtHardwareDeviceType
from assay.runtime.ort.enums import OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType
from assay.runtime.ort.enums import OrtMemType as OrtMemType
from assay.runtime.ort.enums import OrtSparseFormat as OrtSparseFormat
from assay.runtime.ort.environment import cuda_version as cuda_version
from assay.runtime.ort.environment import disable_telemetry_events as disable_telemetry_events
from assay.runtime.ort.environment import enable_telemetry_events as enable_telemetry_events
from assay.runtime.ort.environment import get_build_info as get_build_info
from assay.runtime.ort.environment import get_device as get_device
from assay.runtime.ort.environment import get_version_string as get_version_string
from assay.runtime.ort.environment import has_collective_ops as has_collective_ops
from assay.runtime.ort.environment import import_capi_exception as import_capi_exception
from assay.runtime.ort.environment import package_name as package_name
from assay.runtime.ort.environment import preload_dlls as preload_dlls
from assay.runtime.ort.environment import print_debug_info as print_debug_info
from assay.runtime.ort.environment import set_default_logger_severity as set_default_logger_severity
from assay.runtime.ort.environment import set_default_logger_verbosity as set_default_logger_verbosity
from assay.runtime.ort.environment import set_seed as set_seed
from assay.runtime.ort.environment import version as version
from assay.runtime.ort.memory import OrtArenaCfg as OrtArenaCfg
from assay.runtime.ort.memory import OrtDevice as OrtDevice
from assay.runtime.ort.memory import OrtMemoryInfo as OrtMemoryInfo
from assay.runtime.ort.memory import create_and_register_allocator as create_and_register_allocator
from assay.runtime.ort.memory import create_and_register_allocator_v2 as create_and_register_allocator_v2
from assay.runtime.ort.options import RunOptions as RunOptions
from assay.runtime.ort.providers import get_all_providers as get_all_providers
from assay.runtime.ort.providers import get_available_providers as get_available_providers
from assay.runtime.ort.refused import REFUSED, refused_name
from assay.runtime.ort.session import InferenceSession as InferenceSession
from assay.runtime.ort.values import OrtValue as OrtValue
from assay.runtime.ort.values import copy_tensors as copy_tensors


def __getattr__(name: str) -> Any:
    """What raises when it is used is made when it is asked for."""
    if name not in REFUSED:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    made = refused_name(name)
    globals()[name] = made
    return made
