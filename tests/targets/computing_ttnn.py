"""A card that computes, for tests: a package `ttnn` whose calls torch runs, as `test_ttnn_meaning` says what they mean.

It is imported in the worker, as `ttnn`, from a folder that `install` writes. Tensors are rounded to bfloat16 where a
card stores them so; what the real library would refuse, this takes.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from targets.test_ttnn_meaning import MEANINGS

HERE = Path(__file__).parents[1]


def install(folder: Path) -> dict[str, str]:
    """Write the package into a folder; the variables under which a Python finds it."""
    (folder / "ttnn").mkdir()
    (folder / "ttnn" / "__init__.py").write_text("from targets.computing_ttnn import Tensor, __getattr__\n")
    (folder / "ttnn-0.0.dist-info").mkdir()
    (folder / "ttnn-0.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ttnn\nVersion: 0.0\n")
    return {"PYTHONPATH": f"{folder}:{HERE}"}


class Name:
    """Anything that the library has a name for; as a call it computes, or stands for what was asked for."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{self.path}.{name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __str__(self) -> str:
        return self.path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.path in _OWN:
            return _OWN[self.path](*args, **kwargs)
        if self.path not in MEANINGS:
            return SimpleNamespace(path=self.path, args=args, kwargs=kwargs)
        found = MEANINGS[self.path](*map(_bare, args), **{name: _bare(each) for name, each in kwargs.items()})
        named = next((each for each in args if isinstance(each, Name)), None) if self.path == "typecast" else None
        wide = "float32" if "float32" in _dtypes([*args, *kwargs.values()]) else "bfloat16"
        dtype = wide if named is None else named.path
        results = [found] if isinstance(found, torch.Tensor) else list(found)
        made = [Tensor(each, Name("int32" if each.dtype is torch.long else dtype)) for each in results]
        return made[0] if isinstance(found, torch.Tensor) else made


class Tensor:
    """A tensor on the card, or on the host."""

    def __init__(self, content: Any, dtype: Name, device: Any = None, layout: Any = None) -> None:
        given = torch.as_tensor(content)
        self.dtype = dtype
        self.content = given.long() if "int" in dtype.path else given.double()
        if dtype.path in ("bfloat16", "bfloat8_b", "bfloat4_b"):
            self.content = self.content.bfloat16().double()
        self.host = False

    @property
    def shape(self) -> list[int]:
        return list(self.content.shape)

    def storage_type(self) -> Name:
        return Name(f"StorageType.{'HOST' if self.host else 'DEVICE'}")

    def cpu(self) -> Tensor:
        found = Tensor(self.content.clone(), self.dtype)
        found.host = True
        return found

    def to_numpy(self) -> Any:
        return (self.content.int() if "int" in self.dtype.path else self.content.float()).numpy()


def _bare(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.content
    return [_bare(each) for each in argument] if isinstance(argument, list | tuple) else argument


def _dtypes(arguments: Any) -> set[str]:
    found = (each for each in arguments if isinstance(each, Tensor | list | tuple))
    return {dtype for each in found for dtype in ({each.dtype.path} if isinstance(each, Tensor) else _dtypes(each))}


def _written(cache: Tensor, rows: Tensor, *, update_idxs_tensor: Tensor) -> Tensor:
    meaning = MEANINGS["experimental.paged_update_cache"]
    cache.content.copy_(meaning(cache.content, rows.content, update_idxs_tensor=update_idxs_tensor.content))
    return cache


_DEVICE = SimpleNamespace(
    arch=lambda: "Arch.WORMHOLE_B0",
    get_num_devices=lambda: 1,
    compute_with_storage_grid_size=lambda: SimpleNamespace(x=8, y=8),
)
_OWN: dict[str, Any] = {
    "open_device": lambda **_: _DEVICE,
    "synchronize_device": lambda device: None,
    "get_memory_view": lambda device, kind: SimpleNamespace(total_bytes_per_bank=1 << 30, num_banks=12),
    "clone": lambda x: Tensor(x.content.clone(), x.dtype),
    "to_dtype": lambda x, dtype: Tensor(x.content, dtype),
    "experimental.paged_update_cache": _written,
}


def __getattr__(name: str) -> Name:
    if name.startswith("__"):
        raise AttributeError(name)
    return Name(name)
