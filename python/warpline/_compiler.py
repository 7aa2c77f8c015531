"""Kernels are compiled by helper processes: how they are started from an interpreter, and where NVRTC lies.

A helper runs this file alone, without the package around it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType

# The first argument of a helper; the second is the process that started it.
_ARGUMENT = "--compile-kernels-for"


def serve_if_asked(arguments: Sequence[str]) -> bool:
    """Serves another process to its end, if these are the arguments of a helper."""
    if len(arguments) != 2 or arguments[0] != _ARGUMENT or not arguments[1].isdigit():
        return False
    if __package__:
        from . import _native

        _native.serve_compiler(int(arguments[1]))
    else:
        _load_native().serve_compiler(int(arguments[1]))
    return True


def _load_native() -> ModuleType:
    """The native module beside this file, without the package and what it imports."""
    import importlib.util

    folder = os.path.dirname(os.path.abspath(__file__))
    for name in sorted(os.listdir(folder)):
        if name.startswith("_native") and name.endswith(".so"):
            spec = importlib.util.spec_from_file_location("_native", os.path.join(folder, name))
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
    raise ImportError(f"there is no _native*.so in {folder}: install warpline again")


def announce() -> None:
    """Tells the engine how to start helpers, and which NVRTC a package of this environment brought."""
    from . import _native

    file = os.path.abspath(__file__)
    if sys.executable and os.path.isfile(file):
        # Isolated and without site-packages: a helper starts in milliseconds.
        _native.start_compilers_by(sys.executable, ["-I", "-S", file])
    if not os.environ.get("WARPLINE_NVRTC"):
        library = _installed_nvrtc()
        if library is not None:
            os.environ["WARPLINE_NVRTC"] = library


def _installed_nvrtc() -> str | None:
    """The library of the package `nvidia-cuda-nvrtc`, if it is installed."""
    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [site, *(path for path in sys.path if path.endswith("site-packages"))]
    for folder in folders:
        for part in ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"):
            for name in ("libnvrtc.so.13", "libnvrtc.so.12"):
                library = os.path.join(folder, part, name)
                if os.path.isfile(library):
                    return library
    return None


if __name__ == "__main__":
    sys.exit(0 if serve_if_asked(sys.argv[1:]) else 1)
