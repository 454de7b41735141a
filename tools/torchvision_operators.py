"""Mend a torchvision whose compiled part does not load: the build for CUDA, which PyPI has, beside a torch for CPUs.

Such a torchvision cannot even be imported, nor can what imports it (transformers, timm). Run with the Python whose
torchvision is to be mended; `make zoo` does so. Nothing is done to one that can be imported.

The mended torchvision has `nms`, in NumPy, and what it can do in Python alone, such as `roi_align`. Its other operators
(`deform_conv2d`, `roi_pool`, those of quantised tensors, reading images) are not there.
"""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

OPERATORS = Path(__file__).with_name("torchvision_nms.py")
ADDED = """

# Added by Assay's tools/torchvision_operators.py: `_C` is for another build of torch, and does not load.
import torchvision.torchvision_nms  # noqa: E402, F401


def _assert_has_ops():  # noqa: F811
    pass
"""


def imports() -> bool:
    return subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True).returncode == 0


def main() -> None:
    if imports():
        return
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        sys.exit("torchvision is not installed")
    folder = Path(spec.origin).parent
    shutil.copy(OPERATORS, folder)
    with (folder / "extension.py").open("a") as extension:
        extension.write(ADDED)
    if not imports():
        sys.exit(f"{folder} cannot be imported and could not be mended")
    print(f"zoo: {folder.name} is for another build of torch; its nms is now in NumPy")


if __name__ == "__main__":
    main()
