"""A machine with torch and numpy alone: packages that the engine imports and the bench never calls
get empty stand-ins.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType

NOT_CALLED = ("onnxruntime", "tokenizers", "safetensors", "yaml", "regex", "pypinyin", "wetext")


class _Empty(ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last: only asked for what nobody found.

    `used` are the packages that are really missing.
    """

    def __init__(self, names: tuple[str, ...] = NOT_CALLED):
        self._names, self.used = names, set()

    def find_spec(self, name, path=None, target=None):
        top, _, inner = name.partition(".")
        if top not in self._names or (inner and top not in self.used):
            return None  # a part that a package looks for and lacks is its own affair
        self.used.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Empty(spec.name)

    def exec_module(self, module):
        """There is nothing in it."""


def allow() -> StandIns:
    stand_ins = StandIns()
    sys.meta_path.append(stand_ins)
    return stand_ins
