"""What may stand for a table: variables of the caller, frames of other packages, values of parameters."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import pyarrow as pa

from . import _gpu
from ._native import DeviceResult, Error


_FOLDER = os.path.dirname(__file__)


class Table(NamedTuple):
    """An object with Arrow's C interface, and what may be done with its rows."""

    object: object
    #: `remember`: its buffers are the same when it is asked again, and nobody writes to them; `once`: it was made for this use;
    #: `copy`: its buffers may be written to later.
    use: str


def as_table(thing: object, copy: _gpu.Copy) -> Table | None:
    """The table that a thing is; None if it is none. `copy` fetches what lies on a GPU."""
    from ._result import Result

    if isinstance(thing, Result):
        return Table(thing._query, "once")
    if isinstance(thing, DeviceResult):
        # Other packages may write to its columns.
        return Table(thing.to_arrow(), "once")
    any_thing: Any = thing
    package = type(thing).__module__.partition(".")[0]
    kind = type(thing).__name__
    if package == "pandas" and kind in ("DataFrame", "Series"):
        if kind == "Series":
            any_thing = any_thing.to_frame(name=any_thing.name if any_thing.name is not None else "value")
        # The index is no column, as in SQL there is no order.
        return Table(pa.Table.from_pandas(any_thing, preserve_index=False), "copy")
    if package == "polars" and kind == "LazyFrame":
        return Table(any_thing.collect(), "once")
    if package == "polars" and kind == "Series":
        return Table(any_thing.to_frame(), "once")
    if package == "numpy" and kind == "ndarray":
        return Table(_from_numpy(any_thing), "copy")
    if isinstance(thing, (pa.Array, pa.ChunkedArray)):
        return Table(pa.table({"value": thing}), "once")
    if isinstance(thing, pa.RecordBatchReader):
        return Table(thing, "once")
    if package == "pyarrow" and hasattr(thing, "to_table"):
        # A dataset or its scanner.
        return Table(any_thing.to_table(), "once")
    if package == "cudf" and hasattr(thing, "to_arrow"):
        arrow = any_thing.to_arrow()
        return Table(arrow if isinstance(arrow, pa.Table) else pa.table({"value": arrow}), "once")
    if hasattr(thing, "__arrow_c_stream__") or hasattr(thing, "__arrow_c_array__"):
        return Table(thing, "remember")
    if _gpu.is_array(thing):
        return Table(pa.table({"value": _gpu.column("value", thing, copy)}), "once")
    if isinstance(thing, dict) and thing and all(isinstance(name, str) for name in thing):
        on_gpu = {name: _gpu.column(name, column, copy) for name, column in thing.items() if _gpu.is_array(column)}
        if on_gpu:
            return Table(pa.table({**thing, **on_gpu}), "copy")
        if all(isinstance(column, Sequence) and not isinstance(column, (str, bytes)) for column in thing.values()):
            return Table(pa.table(thing), "once")
        if all(hasattr(column, "__len__") and not isinstance(column, (str, bytes)) for column in thing.values()):
            return Table(pa.table(thing), "copy")
    if isinstance(thing, list) and thing and all(isinstance(row, dict) for row in thing):
        return Table(pa.Table.from_pylist(thing), "once")
    return None


def _from_numpy(array: Any) -> pa.Table:
    if array.dtype.names:
        return pa.table({name: pa.array(array[name]) for name in array.dtype.names})
    if array.ndim == 1:
        return pa.table({"value": pa.array(array)})
    if array.ndim == 2:
        return pa.table({f"column{number}": pa.array(array[:, number]) for number in range(array.shape[1])})
    raise Error(f"an array of {array.ndim} dimensions is no table: give one of 1 or 2")


def caller() -> FrameType | None:
    """The frame outside of this package, whose variables a statement may name."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == _FOLDER:
        frame = frame.f_back
    return frame


def lookup_in(
    frame: FrameType | None, seen: Callable[[Table], None], copy: _gpu.Copy
) -> Callable[[str], Table | None]:
    """Finds tables among the variables of a frame and of its module, by the names that SQL has for them.

    SQL makes names small unless they are quoted: `Trips` is found as `trips` if that is the only one it can be. `seen` is told
    what was taken.
    """

    def lookup(name: str) -> Table | None:
        if not name.isidentifier():
            return None
        if frame is None:
            return None
        for variables in (frame.f_locals, frame.f_globals):
            table = as_table(_named(variables, name), copy)
            if table is not None:
                seen(table)
                return table
        return None

    return lookup


def _named(variables: Mapping[str, object], name: str) -> object | None:
    if name in variables:
        return variables[name]
    alike = [key for key in variables if isinstance(key, str) and key.lower() == name]
    return variables[alike[0]] if len(alike) == 1 else None


def as_params(params: object) -> object | None:
    """The values of parameters as arrays of one value: a list, or a dict by name."""
    if params is None:
        return None
    if isinstance(params, Mapping):
        return {str(name).lstrip("$"): _as_value(value) for name, value in params.items()}
    if isinstance(params, (str, bytes)) or not hasattr(params, "__iter__"):
        raise Error("parameters are a list of values for ? or $1, or a dict of values for $name")
    return [_as_value(value) for value in params]


def _as_value(value: object) -> pa.Array[Any]:
    try:
        if isinstance(value, pa.Scalar):
            return pa.array([value.as_py()], type=value.type)
        if hasattr(value, "item") and type(value).__module__ == "numpy":
            return pa.array([value])
        return pa.array([value])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Error(
            f"a parameter is {value!r}, which has no type in SQL: {error}; give a number, a text, bytes, a date or time, a "
            "Decimal, a list of these, or a pyarrow scalar"
        ) from error
