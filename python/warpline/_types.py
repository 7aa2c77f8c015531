"""Types of functions, and functions of Python as the engine calls them."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ._native import Error

_PYTHON: dict[object, Callable[[], Any]] = {
    bool: pa.bool_,
    int: pa.int64,
    float: pa.float64,
    str: pa.string,
    bytes: pa.binary,
    datetime.date: pa.date32,
    datetime.datetime: lambda: pa.timestamp("us"),
    datetime.time: lambda: pa.time64("us"),
    datetime.timedelta: lambda: pa.duration("us"),
    decimal.Decimal: lambda: pa.decimal128(38, 10),
}

_SQL = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "real": "float32",
    "float": "float32",
    "double": "float64",
    "varchar": "string",
    "text": "string",
    "boolean": "bool",
    "date": "date32",
    "timestamp": "timestamp[ns]",
}


def of(kind: object) -> Any:
    """The type of pyarrow for one of pyarrow, of Python, or a name."""
    if isinstance(kind, pa.DataType):
        return kind
    if isinstance(kind, type) and kind in _PYTHON:
        return _PYTHON[kind]()
    if isinstance(kind, str):
        name = _SQL.get(kind.lower(), kind.lower())
        try:
            return pa.type_for_alias(name)
        except ValueError:
            pass
    raise Error(
        f"{kind!r} is no type of a function: give one of pyarrow (pyarrow.int64()), a name ('int64', 'string', 'double') or one of "
        "Python (int, float, str, bool, bytes, datetime.date, …)"
    )


def vectorized(function: Callable[..., object], returns: Any) -> Callable[..., object]:
    """A function of arrays, whatever kind of array it returns."""

    def call(*arguments: Any) -> object:
        return _array(function(*arguments), returns)

    return call


def by_row(function: Callable[..., object], returns: Any, count: int) -> Callable[..., object]:
    """A function of values, called for each row."""

    def call(*arguments: Any) -> object:
        if count == 0:
            return pa.array([function() for _ in range(arguments[0])], type=returns)
        rows = zip(*(argument.to_pylist() for argument in arguments))
        return pa.array([function(*row) for row in rows], type=returns)

    return call


def _array(result: object, returns: Any) -> object:
    if isinstance(result, pa.ChunkedArray):
        return result.combine_chunks()
    if isinstance(result, pa.Array):
        return result
    if hasattr(result, "to_arrow"):
        # A Series of polars.
        return _array(result.to_arrow(), returns)
    return pa.array(result, type=returns, from_pandas=True)
