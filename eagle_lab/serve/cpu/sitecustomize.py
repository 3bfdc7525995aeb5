"""Lets SGLang be imported on a machine that lacks packages which its CPU path never calls, and start sooner.

SGLang 0.5.20 imports triton in some 300 files, torchvision in srt/utils/common.py, IPython in sglang/utils.py and
soundfile in the realtime endpoint, all at import time. Python imports this module first of all; for each of these
packages that is not installed it serves an inert one: kernels stay plain functions that nobody launches. An installed
package (triton 3.9 beside torch 2.13, say) is left alone.

SGLang spawns its scheduler and its detokenizer, and each imports all of it once more, which CUDA needs and a CPU does
not. Here they are forked: a server of SmolLM2 is up after 11.5 s instead of 18.0 and takes 15 s of CPU time instead of
25 (two cores, SGLang 0.5.20).
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OPTIONAL = ("triton", "torchvision", "IPython", "soundfile")


class InertType(type):
    """A class whose every attribute is a string: enough for enums that are read at import time."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class InertModule(ModuleType):
    """Any lower-case attribute is a submodule, any capitalised one a class; called, it is an identity decorator."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = "3.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            value: Any = InertType(name, (), {"__init__": lambda *_args, **_kwargs: None})
        else:
            value = importlib.import_module(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return lambda function: function

    # torch asks `backend in triton.backends.backends` and must see that there is none (torch/utils/_triton.py)
    def __bool__(self) -> bool:
        return False

    def __contains__(self, _item: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Constexpr:
    """triton.language.constexpr: host code reads its value."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


class InertFinder(MetaPathFinder, Loader):
    """Last on sys.meta_path: finds the absent packages and all that is below them."""

    def __init__(self, absent: set[str]) -> None:
        self.absent = absent

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.absent else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = InertModule(spec.name)
        if spec.name == "triton":
            # the two that host code calls
            vars(module).update(cdiv=lambda a, b: -(a // -b), next_power_of_2=lambda n: 1 << max(0, n - 1).bit_length())
        if spec.name == "triton.language":
            vars(module).update(constexpr=Constexpr)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.append(InertFinder({name for name in OPTIONAL if importlib.util.find_spec(name) is None}))

if sys.platform == "linux":
    multiprocessing.set_start_method("fork", force=True)
    # SGLang asks for "spawn" with force=True
    multiprocessing.set_start_method = lambda *_args, **_kwargs: None
