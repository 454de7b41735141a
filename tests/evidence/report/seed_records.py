"""A published analysis of nine models on a Forge compiler, transcribed as records.

What it printed and what is kept exactly: the components, the failures with their models, the ops with their failed
models, the models' pass rates. What it did not print and is chosen here: which op failed with which failure, and how
many configurations a model has: 100 each, so that the counts below are the printed percents. It ran op configurations
and no whole models; so do these records.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.evidence.records import Case, Cause, Environment, Record
from assay.evidence.records.causes import normalised

STAGES = ("Forge-Fe", "MLIR", "Metalium")
TARGET = "forge"
CONFIGURATIONS = 100

MUSICGEN = {size: f"pt_stereo_facebook_musicgen_{size}_music_generation_hf" for size in ("large", "medium", "small")}
WHISPER = {
    size: f"pt_whisper_openai_whisper_{size}_speech_recognition_hf"
    for size in ("tiny", "base", "small", "medium", "large")
}
TURBO = "pt_whisper_openai_whisper_large_v3_turbo_speech_translate_hf"
MODELS = (*MUSICGEN.values(), *WHISPER.values(), TURBO)

OUTPUT_DTYPE = (
    "[FORGE][TT-Metal vs Forge Output Dtype mismatch] E                   TypeError: Dtype mismatch: "
    "framework_model.dtype=torch.int64, compiled_model.dtype=torch.int32"
)
RUNTIME = "[FORGE][Runtime Datatype mismatch] E       RuntimeError: "
UINT8 = f"{RUNTIME}Tensor 0 - data type mismatch: expected UInt8, got Float32"
UINT32 = f"{RUNTIME}Tensor 1 - data type mismatch: expected UInt32, got Float32"
DATA = (
    "[TT_METAL][TT-Metal vs Forge Output Data mismatch] ValueError Data mismatch -> AutomaticValueChecker "
    "(compare_with_golden): framework_model , compiled_model"
)
BROADCAST = "[TT_METAL][ttnn elementwise binary] RuntimeError BinaryOpType cannot be mapped to BcastOpMath"
CONV2D = (
    "[TT_METAL][ttnn conv2d] RuntimeError tt-metal/ttnn/cpp/ttnn/operations/conv/conv2d/device/"
    "conv2d_op_sharded_program_factory.cpp act_block_w_datums == round_up(conv_act_size_c * filter_w, TILE_WIDTH)"
)

M, W = tuple(MUSICGEN.values()), WHISPER
FAILED: tuple[tuple[str, str, str, int, tuple[str, ...]], ...] = (
    # component, failure, op, configurations, models
    ("Forge-Fe", OUTPUT_DTYPE, "Reshape", 1, (*M, *W.values())),
    ("Forge-Fe", OUTPUT_DTYPE, "Reshape", 1, (MUSICGEN["large"],)),
    ("Forge-Fe", OUTPUT_DTYPE, "Reshape", 1, (W["medium"], W["large"])),
    ("Forge-Fe", OUTPUT_DTYPE, "Unsqueeze", 2, M),
    ("Forge-Fe", OUTPUT_DTYPE, "RepeatInterleave", 2, M),
    ("Forge-Fe", UINT8, "Cast", 2, M),
    ("Forge-Fe", UINT32, "Embedding", 2, M),
    ("Forge-Fe", UINT32, "Index", 1, M),
    ("Metalium", DATA, "Layernorm", 3, M),
    ("Metalium", DATA, "Add", 1, (MUSICGEN["medium"], MUSICGEN["small"])),
    ("Metalium", DATA, "Matmul", 1, (MUSICGEN["large"],)),
    ("Metalium", DATA, "Conv2d", 1, (W["small"], W["medium"], W["large"])),
    ("Metalium", BROADCAST, "Greater", 2, M),
    ("Metalium", BROADCAST, "Add", 1, M),
    ("Metalium", CONV2D, "Conv2d", 2, (W["tiny"], W["base"])),
)
ERRORS = {OUTPUT_DTYPE: "TypeError", DATA: "ValueError"}


def records() -> Iterator[Record]:
    """One record for each op configuration: those that failed, then as many that pass as make up the totals."""
    environment = Environment(date="2025-03-01T00:00:00Z", machine="transcribed")
    failing = dict.fromkeys(MODELS, 0)
    for number, (component, failure, op, count, models) in enumerate(FAILED):
        error = ERRORS.get(failure, "RuntimeError")
        cause = Cause(component, component, error, normalised(failure), op, detail=failure)
        status = "fail_accuracy" if failure == DATA else "fail_compile"
        for index in range(count):
            case = Case(kind="op", name=op, target=TARGET, configuration=f"failing {number}.{index}")
            for model in models:
                failing[model] += 1
            yield Record(
                case=case,
                environment=environment,
                status=status,
                stages=STAGES,
                stage=component,
                cause=cause,
                models=models,
            )
    for model, count in failing.items():
        for index in range(CONFIGURATIONS - count):
            case = Case(kind="op", name="Multiply", target=TARGET, configuration=f"passing {index} of {model}")
            yield Record(
                case=case,
                environment=environment,
                status="pass",
                stages=STAGES,
                stage=STAGES[-1],
                models=(model,),
            )
