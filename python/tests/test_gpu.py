"""Rows on a GPU, taken by PyTorch and CuPy and given by them. Skipped where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pyarrow as pa
import pytest
import warpline

if not any(line.startswith("cuda:") for line in warpline.devices()):
    pytest.skip("no GPU", allow_module_level=True)

torch = pytest.importorskip("torch")
cupy = pytest.importorskip("cupy")

ROWS = 1_000_000


@pytest.fixture
def gpu() -> Iterator[warpline.Connection]:
    with warpline.connect(device="cuda", min_rows=0, progress=False) as connection:
        numbers = numpy.arange(ROWS)
        connection.register(
            "t",
            pa.table(
                {
                    "i": numbers,
                    "small": (numbers % 200 - 100).astype("int8"),
                    "f": numbers * 0.25,
                    "n": pa.array(numbers, mask=numbers % 3 == 0),
                    "s": pa.array([f"text {number % 1000}" for number in range(ROWS)]),
                    "b": numbers % 2 == 0,
                }
            ),
        )
        yield connection


def test_results_are_taken_where_they_lie(gpu: warpline.Connection) -> None:
    query = gpu.sql("SELECT i, small, f FROM t WHERE i % 7 = 0 ORDER BY i DESC")
    expected = query.to_arrow()
    rows = query.on_device()
    assert rows.by_host is None and rows.device == (2, 0) and len(rows) == expected.num_rows
    for name in rows.columns:
        want = expected.column(name).to_numpy()
        tensor = torch.from_dlpack(rows[name])
        assert tensor.is_cuda and numpy.array_equal(tensor.cpu().numpy(), want)
        for array in (cupy.from_dlpack(rows[name]), cupy.asarray(rows[name])):
            assert array.data.ptr == tensor.data_ptr()
            assert numpy.array_equal(cupy.asnumpy(array), want)
        assert torch.as_tensor(rows[name], device="cuda").data_ptr() == tensor.data_ptr()
    # Work that is queued on what was handed out ends before its memory is used again.
    taken = torch.from_dlpack(rows["i"])
    want = expected.column("i").to_numpy().sum()
    del rows, tensor, array
    total = taken.sum()
    del taken
    gpu.sql("SELECT i + 1 AS j FROM t").on_device()
    assert total.item() == want


def test_all_types_come_back(gpu: warpline.Connection) -> None:
    query = gpu.sql("SELECT * FROM t WHERE i % 3 < 2 ORDER BY i")
    rows = query.on_device()
    assert rows.by_host is None and rows["n"].null_count > 0
    copied = rows.to_arrow()
    expected = query.to_arrow()
    for name in expected.column_names:
        assert copied.column(name).cast(expected.schema.field(name).type).equals(expected.column(name)), name
    with pytest.raises(AttributeError, match="COALESCE"):
        rows["n"].__cuda_array_interface__


def test_memory_comes_back(gpu: warpline.Connection) -> None:
    def held() -> int:
        memory = gpu.memory()
        assert memory is not None
        return memory.in_use

    gpu.sql("SELECT i FROM t").on_device()
    before = held()
    rows = gpu.sql("SELECT i FROM t").on_device()
    taken = cupy.asarray(rows["i"])
    del rows
    assert held() >= before + ROWS * 8
    del taken
    assert held() <= before


def test_arrays_of_a_gpu_as_tables(gpu: warpline.Connection) -> None:
    x = torch.arange(ROWS, device="cuda")
    y = cupy.arange(ROWS, dtype="float32") / 2
    # Queued on streams that nobody waits for.
    x = x * 2
    assert gpu.sql("SELECT sum(value) FROM x").fetchone() == (ROWS * (ROWS - 1),)
    gpu.register("u", {"x": x, "y": y, "b": x % 3 == 0})
    assert gpu.sql("SELECT count(*), max(y) FROM u WHERE b").fetchone() == ((ROWS + 2) // 3, (ROWS - 1) / 2)
    rows = gpu.sql("SELECT x, y FROM u WHERE b ORDER BY x").on_device()
    gpu.register("v", rows)
    assert gpu.sql("SELECT count(*) FROM v JOIN u ON v.x = u.x").fetchone() == (len(rows),)
    with pytest.raises(warpline.Error, match="not contiguous"):
        gpu.register("w", x[::2])


def test_cudf_takes_and_gives_frames(gpu: warpline.Connection) -> None:
    plc = pytest.importorskip("pylibcudf")
    cudf = pytest.importorskip("cudf")
    sql = "SELECT *, cast(f AS decimal(12, 2)) AS d, cast(i AS timestamp) AS w FROM t WHERE i % 5 < 2 ORDER BY i"
    query = gpu.sql(sql)
    rows, expected = query.on_device(), query.to_arrow()
    assert rows.by_host is None
    table = plc.Table.from_arrow(rows)
    frame = cudf.DataFrame.from_pylibcudf(table, metadata={"columns": rows.columns})
    for name in expected.column_names:
        column = frame[name].to_arrow()
        assert column.cast(expected.schema.field(name).type).equals(expected.column(name).combine_chunks()), name
    del rows
    assert frame["i"].sum() == sum(i for i in range(ROWS) if i % 5 < 2)
    # A column that cuDF has computed is a table's.
    frame["twice"] = frame["i"] * 2
    gpu.register("frame", frame)
    assert gpu.sql("SELECT sum(twice) - 2 * sum(i), count(s), count(n) FROM frame").fetchone() == (
        0,
        len(frame),
        int(frame["n"].count()),
    )
