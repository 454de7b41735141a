"""The lowerings of aten ops, a file a family; importing this package enters them all."""

import importlib
import pkgutil

for _family in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_family.name}")
