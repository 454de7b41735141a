"""The kernels, one file a family: what plans a node, and what writes its kernel. Importing this enters them all."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
