"""Columns in the memory of a GPU, of CuPy, PyTorch, Numba and others, as tables: they are copied to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ._native import Error

#: Bytes at an address of the GPU.
Copy = Callable[[int, int], bytes]

_TYPES: dict[str, pa.DataType] = {
    "i1": pa.int8(),
    "i2": pa.int16(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "u1": pa.uint8(),
    "u2": pa.uint16(),
    "u4": pa.uint32(),
    "u8": pa.uint64(),
    "f2": pa.float16(),
    "f4": pa.float32(),
    "f8": pa.float64(),
}


def is_array(thing: object) -> bool:
    """Does it lie in the memory of a GPU? PyTorch answers with an error where it does not."""
    try:
        return hasattr(thing, "__cuda_array_interface__")
    except (TypeError, RuntimeError):
        return False


def column(name: str, thing: Any, copy: Copy) -> pa.Array[Any]:
    """The values of an array of one dimension."""
    known = thing.__cuda_array_interface__
    shape, kind, strides = known["shape"], known["typestr"], known.get("strides")
    if len(shape) != 1:
        raise Error(f"column '{name}' has {len(shape)} dimensions: give a dict of arrays of one")
    if known.get("mask") is not None:
        raise Error(f"column '{name}' has a mask, which is not read: copy it to the host with its NULLs")
    is_bool = kind[1:] == "b1"
    data_type = pa.uint8() if is_bool else _TYPES.get(kind[1:])
    if data_type is None or kind[0] == ">":
        raise Error(f"column '{name}' is of type {kind}, which is no number that SQL has: convert it before")
    width, rows = data_type.bit_width // 8, shape[0]
    if strides is not None and rows > 1 and strides[0] != width:
        raise Error(f"column '{name}' is not contiguous: cupy.ascontiguousarray(x) and tensor.contiguous() make it so")
    values = copy(known["data"][0], rows * width) if rows else b""
    array: pa.Array[Any] = pa.Array.from_buffers(data_type, rows, [None, pa.py_buffer(values)])
    return array.cast(pa.bool_()) if is_bool else array
