"""The `warpline` program: a SQL shell, benchmarks, the list of devices. `python -m warpline --help` shows all of it."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the program with the arguments of this process, and returns the status to exit with."""
    from . import _compiler, _native

    if _compiler.serve_if_asked(sys.argv[1:]):
        return 0
    # Ctrl-C is the program's to handle: there is no Python code to interrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.run_program(["warpline", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
