"""torch's op database and the tolerances of its own tests: private names, used here alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch.testing._comparison import default_tolerances as default_tolerances
from torch.testing._internal.common_device_type import precisionOverride as precisionOverride
from torch.testing._internal.common_device_type import toleranceOverride as toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db as op_db
from torch.testing._internal.opinfo.core import DecorateInfo as DecorateInfo

__all__ = ["DecorateInfo", "default_tolerances", "op_db", "precisionOverride", "toleranceOverride", "unseeded"]


def unseeded() -> None:
    """Entries that are an op behind a function that seeds first, into which dynamo does not look, seed no more."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal") and hasattr(module, "wrapper_set_seed"):
            vars(module)["wrapper_set_seed"] = _call


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)
