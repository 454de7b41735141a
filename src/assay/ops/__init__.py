"""One op, one definition: importing this package enters every file of `definitions` into `CORE`."""

import importlib
import pkgutil

from assay.ops import definitions as _definitions

for _module in pkgutil.iter_modules(_definitions.__path__):
    importlib.import_module(f"{_definitions.__name__}.{_module.name}")

from assay.ops.registry import CORE as CORE  # noqa: E402
from assay.ops.registry import OPS as OPS  # noqa: E402
