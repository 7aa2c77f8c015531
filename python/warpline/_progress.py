"""Progress of long statements: a line on a terminal, a text in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

# Statements that are done by then show nothing, in seconds.
_PATIENCE = 0.7
# To the beginning of the line, which is erased.
_ERASE = "\r\x1b[K"


def kind() -> str | None:
    """How progress can be shown: `terminal`, `notebook`, or not at all."""
    if threading.current_thread() is not threading.main_thread():
        return None
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and hasattr(shell, "kernel"):
        return "notebook"
    if sys.stderr is not None and sys.stderr.isatty():
        return "terminal"
    return None


class Progress:
    """Shows, while a statement runs, how long it has and what the device holds."""

    def __init__(self, wanted: bool | None, state: Callable[[], str]) -> None:
        self._kind = None if wanted is False else kind()
        if wanted and self._kind is None:
            self._kind = "lines"
        self._state = state
        self._shown = False
        self._display: Any = None

    def __enter__(self) -> Callable[[float], None] | None:
        return None if self._kind is None else self._tick

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shown:
            return
        if self._kind == "terminal":
            self._write(_ERASE)
        elif self._display is not None:
            self._display.update({"text/plain": ""}, raw=True)

    def _tick(self, seconds: float) -> None:
        if seconds < _PATIENCE:
            return
        hint = "interrupt the kernel to cancel" if self._kind == "notebook" else "Ctrl-C cancels"
        line = f"{seconds:.1f} s, {self._state()} ({hint})"
        if self._kind == "terminal":
            self._write(f"{_ERASE}{line} ")
        elif self._kind == "notebook":
            from IPython.display import display

            if self._display is None:
                self._display = display({"text/plain": line}, raw=True, display_id=True)
            else:
                self._display.update({"text/plain": line}, raw=True)
        elif not self._shown:
            self._write(line + "\n")
        self._shown = True

    @staticmethod
    def _write(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            # A terminal that went away is no error.
            pass
