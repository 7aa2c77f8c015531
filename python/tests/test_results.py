"""Results: every way to read them, laziness, errors, what people see."""

from __future__ import annotations

import datetime
import decimal
import json
import pathlib

import numpy
import pandas
import polars
import pyarrow as pa
import pytest
import warpline

ROWS = [(1, "a"), (2, None), (3, "ü")]
QUERY = "SELECT n, s FROM (VALUES (1, 'a'), (2, NULL), (3, 'ü')) AS t(n, s) ORDER BY n"


def test_rows_are_the_same_whatever_reads_them(con: warpline.Connection) -> None:
    con.register("t", pa.table({"n": [3, 1, 2], "s": ["ü", "a", None]}))
    result = con.sql("SELECT n, s FROM t ORDER BY n")
    assert result.columns == ["n", "s"]
    assert result.schema.names == ["n", "s"]
    assert result.fetchall() == ROWS
    assert result.to_arrow().to_pydict() == {"n": [1, 2, 3], "s": ["a", None, "ü"]}
    assert result.to_pydict() == {"n": [1, 2, 3], "s": ["a", None, "ü"]}
    assert result.to_polars().rows() == ROWS
    assert result.to_pandas()["n"].tolist() == [1, 2, 3]
    assert result.to_numpy()["n"].tolist() == [1, 2, 3]
    assert pa.table(result).num_rows == 3
    assert polars.DataFrame(result).rows() == ROWS
    assert list(con.sql("SELECT n, s FROM t ORDER BY n")) == ROWS
    assert len(result) == 3
    if con.device == "emulator":
        assert result.metrics is not None
        assert result.metrics["kernels"] > 0 and result.metrics["fallbacks"] == []


def test_a_cursor_goes_through_the_rows_once(cpu: warpline.Connection) -> None:
    result = cpu.sql(QUERY)
    assert result.fetchone() == (1, "a")
    assert result.fetchmany(1) == [(2, None)]
    assert result.fetchall() == [(3, "ü")]
    assert result.fetchall() == [] and result.fetchone() is None
    assert result.to_arrow().num_rows == 3


def test_batches_come_as_they_are_computed(cpu: warpline.Connection) -> None:
    result = cpu.sql("SELECT value FROM generate_series(1, 10000000000)")
    reader = result.batches()
    first = reader.read_next_batch()
    assert first.num_rows > 0 and first.column(0)[0].as_py() == 1
    # The rest is never computed.
    reader.close()
    assert cpu.sql("SELECT value FROM generate_series(1, 10000000000)").fetchone() == (1,)


def test_a_query_runs_when_its_rows_are_wanted(cpu: warpline.Connection) -> None:
    calls = []

    def seen(values: pa.Array) -> pa.Array:
        calls.append(len(values))
        return values

    cpu.create_function("seen", seen, [int], int, volatility="volatile")
    result = cpu.sql("SELECT seen(value) FROM generate_series(1, 3)")
    assert result.columns and not calls
    assert result.to_arrow().num_rows == 3
    ran = len(calls)
    assert ran > 0
    # The rows are kept.
    assert result.to_arrow().num_rows == 3 and len(result.fetchall()) == 3 and repr(result)
    assert len(calls) == ran


def test_statements_run_at_once(con: warpline.Connection) -> None:
    con.sql("CREATE TABLE t AS SELECT value AS x FROM generate_series(1, 4)")
    assert con.tables() == ["t"]
    con.sql("INSERT INTO t VALUES (10), (?)", [20])
    assert con.sql("SELECT count(*), sum(x) FROM t").fetchone() == (6, 40)
    con.sql("DROP TABLE t")
    assert con.tables() == []
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_several_statements(con: warpline.Connection) -> None:
    source = pa.table({"x": [1, 2]})  # noqa: F841
    answer = con.sql("CREATE TABLE t AS SELECT * FROM source; -- done;\nINSERT INTO t VALUES (3); SELECT sum(x), ';' FROM t;")
    assert answer.fetchall() == [(6, ";")]
    with pytest.raises(warpline.Error, match="parameters are for one statement"):
        con.sql("SELECT ?; SELECT ?", [1])
    for nothing in ["", " ;; ", "-- nothing"]:
        assert con.sql("SELECT 1;" + nothing).fetchall() == [(1,)]
    assert warpline.sql("SELECT 1").fetchall() == [(1,)]


def test_rows_are_written_to_files(con: warpline.Connection, tmp_path: pathlib.Path) -> None:
    con.register("t", pa.table({"x": [1, 2, 3], "s": ["a", None, "ü"]}))
    result = con.sql("SELECT * FROM t WHERE x <> ? ORDER BY x", [2])
    assert result.write_parquet(tmp_path / "t.parquet") == 2
    assert con.read_parquet(tmp_path / "t.parquet").fetchall() == [(1, "a"), (3, "ü")]
    assert result.write_csv(tmp_path / "t.csv") == 2
    assert (tmp_path / "t.csv").read_text() == "x,s\n1,a\n3,ü\n"
    assert con.read_csv(tmp_path / "t.csv").write_json(tmp_path / "t.json") == 2
    assert json.loads((tmp_path / "t.json").read_text().splitlines()[1]) == {"x": 3, "s": "ü"}
    (tmp_path / "file").write_text("")
    with pytest.raises(warpline.Error):
        result.write_parquet(tmp_path / "file" / "t.parquet")


def test_types_of_python(cpu: warpline.Connection) -> None:
    row = cpu.sql(
        "SELECT TRUE, CAST(1 AS TINYINT), 1.5e0, CAST(1.25 AS DECIMAL(9, 2)), DATE '2024-02-29', "
        "TIMESTAMP '2024-02-29 12:34:56.123456', X'00ff', [1, 2], {a: 1}, NULL"
    ).fetchone()
    assert row is not None
    assert row[:4] == (True, 1, 1.5, decimal.Decimal("1.25"))
    assert row[4:6] == (datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 34, 56, 123456))
    assert row[6:] == (b"\x00\xff", [1, 2], {"a": 1}, None)


def test_no_rows_and_no_columns(con: warpline.Connection) -> None:
    con.register("t", pa.table({"x": pa.array([], pa.int64()), "s": pa.array([], pa.string())}))
    result = con.sql("SELECT * FROM t WHERE x > 1")
    assert result.to_arrow().num_rows == 0 and result.schema.names == ["x", "s"]
    assert result.fetchall() == [] and result.fetchone() is None and len(result) == 0
    assert result.to_polars().shape == (0, 2)
    assert "0 rows" in repr(result) and "0 rows" in result._repr_html_()
    assert con.sql("SET datafusion.execution.batch_size = 100").fetchall() == []


def test_parameters(con: warpline.Connection) -> None:
    con.register("t", pa.table({"x": [1, 2, 3], "s": ["a?", "b", "c"]}))
    assert con.sql("SELECT x FROM t WHERE x > ? AND s <> ?", [1, "c"]).fetchall() == [(2,)]
    assert con.sql("SELECT x FROM t WHERE s = 'a?' AND x = ? -- ?\n", [1]).fetchall() == [(1,)]
    assert con.sql("SELECT x + $2 FROM t WHERE x = $1", [1, 10]).fetchall() == [(11,)]
    assert con.sql("SELECT x FROM t WHERE x = $x", {"x": 3}).fetchall() == [(3,)]
    today = datetime.date(2024, 1, 2)
    values = [None, True, 2**40, 1.5, "ü'", b"\x00", today, decimal.Decimal("1.10"), numpy.int32(7), [1, 2]]
    marks = ", ".join("?" * len(values))
    answer = con.sql(f"SELECT {marks}", values).fetchone()
    assert answer == tuple(int(v) if isinstance(v, numpy.int32) else v for v in values)
    assert "Bob" in con.sql("EXPLAIN SELECT s FROM t WHERE s = ?", ["Bob"]).fetchall()[0][1]
    with pytest.raises(warpline.Error, match="2 parameters.*1 values"):
        con.sql("SELECT ?, ?", [1])
    with pytest.raises(warpline.Error, match="no type in SQL"):
        con.sql("SELECT ?", [object()])
    with pytest.raises(warpline.Error, match="list of values"):
        con.sql("SELECT ?", "text")
    with pytest.raises(warpline.Error):
        con.sql("SELECT $1").fetchall()


def test_errors_name_cause_and_remedy(con: warpline.Connection) -> None:
    for text, message in [
        ("SELECT nope FROM (SELECT 1 AS x)", "nope"),
        ("SELEC 1", "syntax"),
        ("SELECT * FROM missing", "SHOW TABLES"),
        ("SELECT * FROM 'missing.parquet'", "no such table, nor a file"),
        ("SET warpline.nope = 1", "there is no setting warpline.nope"),
    ]:
        with pytest.raises(warpline.Error, match=message):
            con.sql(text)
    # One that shows only when rows are computed.
    con.register("t", pa.table({"x": [1, 0]}))
    for read in [
        lambda result: result.to_arrow(),
        lambda result: result.fetchone(),
        lambda result: list(result),
        lambda result: repr(result),
        lambda result: result.execute(),
    ]:
        with pytest.raises(warpline.Error, match="[Dd]ivide by zero"):
            read(con.sql("SELECT 1 / x FROM t"))
    with pytest.raises(pa.ArrowException, match="[Dd]ivide by zero"):
        pa.table(con.sql("SELECT 1 / x FROM t"))
    # The connection goes on.
    assert con.sql("SELECT count(*) FROM t").fetchone() == (2,)


def test_what_people_see(cpu: warpline.Connection) -> None:
    result = cpu.sql("SELECT n, s FROM (VALUES (1, '<b>&'), (2, NULL)) AS t(n, s)")
    text = repr(result)
    assert "n │ s" in text and "NULL" in text and "2 rows" in text
    assert repr(cpu.sql("SET datafusion.execution.batch_size = 100")) == "done"
    html = result._repr_html_()
    assert "&lt;b&gt;&amp;" in html and "<i>NULL</i>" in html and "<b>" not in html
    long = cpu.sql("SELECT value FROM generate_series(1, 50000)")
    assert "50000 rows, of which the first 20 are shown" in repr(long)
    endless = cpu.sql("SELECT value FROM generate_series(1, 100000000000)")
    assert "the first 20 rows" in repr(endless)


def test_wide_results_fit_the_terminal(cpu: warpline.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for count in range(1, 30):
        shown = repr(cpu.sql("SELECT " + ", ".join(f"{number} AS c{number}" for number in range(count)))).splitlines()
        assert max(len(line) for line in shown[:-1]) <= 80
        assert len({len(line) for line in shown[:-1]}) == 1
        assert "c0" in shown[1] and f"c{count - 1}" in shown[1]
        hidden = shown[1].count("…")
        assert ("columns are not shown" in shown[-1]) == bool(hidden)
    wide = repr(cpu.sql("SELECT repeat('x', 200) AS a, repeat('y', 200) AS b"))
    assert "…" in wide


def test_show_prints(cpu: warpline.Connection, capsys: pytest.CaptureFixture[str]) -> None:
    cpu.sql("SELECT value FROM generate_series(1, 5)").show(2)
    assert "5 rows, of which the first 2" in capsys.readouterr().out


def test_plans_and_profiles(con: warpline.Connection, tmp_path: pathlib.Path) -> None:
    con.register("t", pa.table({"x": [1, 2, 3]}))
    result = con.sql("SELECT sum(x) FROM t")
    assert ("GpuFragment" in result.explain()) == (con.device == "emulator")
    assert "output_rows" in result.explain(analyze=True)
    bound = con.sql("SELECT x FROM t WHERE x > ?", [2])
    assert "physical_plan" in bound.explain() and "metrics" in bound.explain(analyze=True)
    profile = result.profile(runs=2)
    assert [run["name"] for run in profile.runs] == ["cold run", "hot run 1"]
    profile.save(str(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    with pytest.raises(warpline.Error, match="values of its parameters"):
        bound.profile()
    with pytest.raises(warpline.Error, match="has run already"):
        con.sql("SET datafusion.execution.batch_size = 100").explain()


def test_columns_for_other_packages(con: warpline.Connection) -> None:
    con.register("t", pa.table({"x": [1, 2, 3], "f": [1.5, 2.5, 3.5], "s": ["a", "b", None], "n": [1, None, 3]}))
    result = con.sql("SELECT * FROM t ORDER BY x")
    column = result["x"]
    assert (column.name, column.type, len(column)) == ("x", "Int64", 3)
    assert numpy.from_dlpack(column).tolist() == [1, 2, 3]
    assert numpy.from_dlpack(result["f"]).dtype == numpy.float64
    assert column.__dlpack_device__() == (1, 0)
    assert column.to_arrow().to_pylist() == [1, 2, 3] and pa.array(result[2]).to_pylist() == ["a", "b", None]
    # Both versions of the protocol, read and not read.
    assert "dltensor_versioned" in repr(column.__dlpack__(max_version=(1, 0)))
    assert "dltensor" in repr(column.__dlpack__())
    array = numpy.from_dlpack(result["f"])
    del result, column
    assert array.sum() == 7.5
    for name, message in [("s", "CAST"), ("n", "COALESCE")]:
        with pytest.raises(BufferError, match=message):
            con.sql("SELECT * FROM t")[name].__dlpack__()
    with pytest.raises(BufferError, match="memory of the host"):
        con.sql("SELECT x FROM t")["x"].__dlpack__(dl_device=(2, 0))
    with pytest.raises(KeyError, match="the columns are x"):
        con.sql("SELECT x FROM t")["y"]
    with pytest.raises(IndexError):
        con.sql("SELECT x FROM t")[1]


class OfDevice:
    """Has Arrow's device interface alone."""

    def __init__(self, thing: object) -> None:
        self.__arrow_c_device_array__ = thing.__arrow_c_device_array__  # type: ignore[attr-defined]


def test_device_arrays(con: warpline.Connection) -> None:
    con.register("t", pa.table({"x": [1, 2, 3], "s": ["a", "b", None]}))
    result = con.sql("SELECT * FROM t ORDER BY x")
    schema, array = result.__arrow_c_device_array__()
    batch = pa.RecordBatch._import_from_c_device_capsule(schema, array)
    assert batch.to_pydict() == {"x": [1, 2, 3], "s": ["a", "b", None]}
    assert batch.is_cpu
    column = pa.Array._import_from_c_device_capsule(*result["s"].__arrow_c_device_array__())
    assert column.to_pylist() == ["a", "b", None]
    # Capsules that nobody reads are released.
    result.__arrow_c_device_array__()
    empty = con.sql("SELECT * FROM t WHERE x > 5")
    assert pa.RecordBatch._import_from_c_device_capsule(*empty.__arrow_c_device_array__()).num_rows == 0


def test_rows_that_stay_on_the_device(emulator: warpline.Connection) -> None:
    emulator.register("t", pa.table({"x": [1, 2, 3], "f": [0.5, 1.5, None], "s": ["a", None, "ü"], "b": [True, False, None]}))
    rows = emulator.sql("SELECT x, f, s, b FROM t WHERE x > 0 ORDER BY x DESC").on_device()
    assert (rows.columns, len(rows), rows.by_host) == (["x", "f", "s", "b"], 3, None)
    # The emulator's memory is the host's.
    assert rows.device == (1, 0) and "3 rows on the emulator" in repr(rows)
    schema, array = rows.__arrow_c_device_array__()
    batch = pa.RecordBatch._import_from_c_device_capsule(schema, array)
    expected = {"x": [3, 2, 1], "f": [None, 1.5, 0.5], "s": ["ü", None, "a"], "b": [None, False, True]}
    assert batch.to_pydict() == expected == rows.to_arrow().to_pydict()
    column = rows["x"]
    assert (column.name, column.type, len(column), column.null_count) == ("x", "Int64", 3, 0)
    tensor = numpy.from_dlpack(column)
    assert "dltensor_versioned" in repr(column.__dlpack__(max_version=(1, 0)))
    assert "dltensor" in repr(column.__dlpack__())
    assert rows[-1].null_count == 1 and rows["f"].null_count == 1
    text = pa.Array._import_from_c_device_capsule(*rows[2].__arrow_c_device_array__())
    # A table of them is a copy, which later writes do not change.
    emulator.register("again", rows)
    tensor[0] = 30
    assert numpy.from_dlpack(rows["x"]).tolist() == [30, 2, 1]
    assert emulator.sql("SELECT sum(x) FROM again").fetchone() == (6,)
    # What was handed out outlives the result.
    del rows, column, batch
    assert tensor.tolist() == [30, 2, 1] and text.to_pylist() == ["ü", None, "a"]


def test_rows_on_the_device_that_cannot_be_had(emulator: warpline.Connection, cpu: warpline.Connection) -> None:
    rows = emulator.sql("SELECT 1 AS x, 'a' AS s, CAST(NULL AS BIGINT) AS n, [1, 2] AS l").on_device()
    assert rows.by_host is not None and "CPU" in rows.by_host
    assert rows.to_arrow().to_pylist() == [{"x": 1, "s": "a", "n": None, "l": [1, 2]}]
    for name, message in [("s", "CAST"), ("n", "COALESCE")]:
        with pytest.raises(BufferError, match=message):
            rows[name].__dlpack__()
    with pytest.raises(BufferError, match="emulator"):
        rows["x"].__dlpack__(dl_device=(2, 0))
    # CUDA's interface is for GPUs.
    assert not hasattr(rows["x"], "__cuda_array_interface__")
    with pytest.raises(KeyError, match="the columns are x, s, n, l"):
        rows["y"]
    for number in [4, -5]:
        with pytest.raises(IndexError, match="no column"):
            rows[number]
    with pytest.raises(warpline.Error, match="no device is in use"):
        cpu.sql("SELECT 1").on_device()
    with pytest.raises(warpline.Error, match="zero"):
        emulator.sql("SELECT 1 / (value - 1) FROM generate_series(1, 3)").on_device()
    empty = emulator.sql("SELECT 1 AS x WHERE false").on_device()
    assert len(empty) == 0 and bool(empty) and numpy.from_dlpack(empty["x"]).tolist() == []


class OnGpu:
    """Has CUDA's interface; the memory is the host's, as the emulator's is."""

    def __init__(self, array: numpy.ndarray, **other: object) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, **other}


def test_arrays_of_a_gpu_as_tables(emulator: warpline.Connection, cpu: warpline.Connection) -> None:
    numbers, truth = OnGpu(numpy.array([3, 1, 2], dtype="int32")), OnGpu(numpy.array([True, False, True]))
    emulator.register("t", {"n": numbers, "t": truth, "s": ["a", "b", "c"]})
    assert emulator.sql("SELECT * FROM t ORDER BY n").fetchall() == [(1, False, "b"), (2, True, "c"), (3, True, "a")]
    assert emulator.sql("SELECT sum(value) FROM numbers").fetchone() == (6,)
    halves = OnGpu(numpy.arange(4.0) / 2)
    assert emulator.sql("SELECT max(value) FROM halves").fetchone() == (1.5,)
    with pytest.raises(warpline.Error, match="2 dimensions"):
        emulator.register("u", OnGpu(numpy.zeros((2, 2))))
    with pytest.raises(warpline.Error, match="not contiguous"):
        emulator.register("u", OnGpu(numpy.arange(8)[::2]))
    with pytest.raises(warpline.Error, match="mask"):
        emulator.register("u", OnGpu(numpy.arange(8), mask=truth))
    with pytest.raises(warpline.Error, match="no number that SQL has"):
        emulator.register("u", OnGpu(numpy.zeros(2, dtype="complex64")))
    with pytest.raises(warpline.Error, match="the CPU answers here"):
        cpu.register("t", numbers)


def test_a_result_outlives_its_connection() -> None:
    con = warpline.connect(device="cpu")
    kept, lazy = con.sql("SELECT 1").execute(), con.sql("SELECT 2")
    table = con.sql("SELECT 3 AS x").to_arrow()
    con.close()
    assert con.closed and "closed" in repr(con)
    assert kept.fetchall() == [(1,)] and table.to_pydict() == {"x": [3]}
    for late in [lambda: lazy.fetchall(), lambda: con.sql("SELECT 1"), lambda: con.tables(), lambda: con.memory()]:
        with pytest.raises(warpline.Error, match="closed"):
            late()
    con.close()


def test_pandas_frames_have_arrow_types(cpu: warpline.Connection) -> None:
    frame = cpu.sql("SELECT 1 AS i, 'a' AS s").to_pandas(types_mapper=pandas.ArrowDtype)
    assert str(frame["i"].dtype) == "int64[pyarrow]"
