"""SQL over Arrow, pandas, polars and files, on a GPU where there is one.

>>> import pyarrow as pa
>>> import warpline
>>> con = warpline.connect()
>>> trips = pa.table({"city": ["Oslo", "Rome", "Oslo"], "km": [3, 5, 4]})
>>> con.sql("SELECT city, sum(km) AS km FROM trips GROUP BY city ORDER BY city").fetchall()
[('Oslo', 7), ('Rome', 5)]

`connect` opens a session; `Connection.sql` answers a `Result`, which runs when its rows are wanted.
"""

from __future__ import annotations

import atexit as _atexit
from collections.abc import Mapping, Sequence

from . import _compiler, _native
from ._connection import Connection, DeviceMemory, Memory, Pin, ResidentColumn, connect
from ._native import Column, DeviceColumn, DeviceResult, Error, __version__
from ._result import Profile, Result

__all__ = [
    "Column",
    "Connection",
    "DeviceColumn",
    "DeviceMemory",
    "DeviceResult",
    "Error",
    "Memory",
    "Pin",
    "Profile",
    "ResidentColumn",
    "Result",
    "__version__",
    "connect",
    "devices",
    "sql",
]

_compiler.announce()
_atexit.register(_native.shut_down)


_default: Connection | None = None


def sql(text: str, params: Sequence[object] | Mapping[str, object] | None = None) -> Result:
    """As `Connection.sql`, on a connection that the first call opens.

    >>> import warpline
    >>> warpline.sql("SELECT 6 * 7").fetchone()
    (42,)
    """
    global _default
    if _default is None or _default.closed:
        _default = connect()
    return _default.sql(text, params)


def devices() -> list[str]:
    """One line for each kind of device: what it is, or why it cannot be used and what to install.

    >>> import warpline
    >>> any(line.startswith("cpu") for line in warpline.devices())
    True
    """
    return _native.devices()
