"""One op, one definition: importing this package enters every family file into `CORE`."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

from assay.ops.registry import CORE as CORE  # noqa: E402
