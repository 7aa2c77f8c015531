"""Tables from elsewhere: variables by name, registered frames, files."""

from __future__ import annotations

import gc
import gzip
import json
import pathlib

import numpy
import pandas
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import warpline

GLOBAL = pa.table({"x": [7]})


def test_variables_of_every_kind(con: warpline.Connection) -> None:
    values = {"x": [1, 2, 3], "s": ["a", "b", None]}
    arrow = pa.table(values)
    things = [
        arrow,
        arrow.to_batches()[0],
        pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches()),
        pandas.DataFrame(values),
        polars.DataFrame(values),
        polars.LazyFrame(values),
        values,
        [{"x": 1, "s": "a"}, {"x": 2, "s": "b"}, {"x": 3, "s": None}],
        pyarrow.dataset.dataset(arrow),
        con.sql("SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL)) AS v(x, s)"),
    ]
    for thing in things:  # noqa: B007
        rows = con.sql("SELECT x, s FROM thing WHERE x >= 2 ORDER BY x").fetchall()
        assert rows == [(2, "b"), (3, None)], type(thing)
    numbers = numpy.array([1.5, 2.5])
    assert con.sql("SELECT sum(value) FROM numbers").fetchone() == (4.0,)
    matrix = numpy.arange(6).reshape(3, 2)
    assert con.sql("SELECT sum(column0), sum(column1) FROM matrix").fetchone() == (6, 9)
    series = polars.Series("n", [1, 2])
    assert con.sql("SELECT sum(n) FROM series").fetchone() == (3,)


def test_names_are_found_where_python_finds_them(con: warpline.Connection) -> None:
    assert con.sql("SELECT x FROM GLOBAL").fetchone() == (7,)
    Trips = pa.table({"x": [8]})  # noqa: N806, F841
    assert con.sql("SELECT x FROM Trips").fetchone() == (8,)
    assert con.sql('SELECT x FROM "Trips"').fetchone() == (8,)

    def inner() -> object:
        hidden = pa.table({"x": [9]})  # noqa: F841
        return con.sql("SELECT x FROM hidden").fetchone()

    assert inner() == (9,)
    number = 5  # noqa: F841
    for name in ["hidden", "number"]:
        with pytest.raises(warpline.Error, match="SHOW TABLES"):
            con.sql(f"SELECT * FROM {name}")
    # Tables of the session come first, and names of WITH stand for themselves.
    con.register("trips", {"x": [1]})
    assert con.sql("SELECT x FROM Trips").fetchone() == (1,)
    assert con.sql("WITH global AS (SELECT 2 AS x) SELECT x FROM global").fetchone() == (2,)
    assert con.tables() == ["trips"]


def test_a_query_has_the_rows_of_its_variables(con: warpline.Connection) -> None:
    frame = pandas.DataFrame({"x": [1, 2, 3]})
    before = con.sql("SELECT sum(x) FROM frame")
    frame.loc[0, "x"] = 100
    assert before.fetchone() == (6,)
    assert con.sql("SELECT sum(x) FROM frame").fetchone() == (105,)
    frame = pandas.DataFrame({"x": [1.0, 2.0]})
    assert con.sql("SELECT sum(x) FROM frame").fetchone() == (3.0,)
    values = numpy.array([1, 2, 3])
    view = pandas.DataFrame({"x": values}, copy=False)
    con.register("view", view)
    values[0] = 100
    assert con.sql("SELECT sum(x) FROM view").fetchone() == (6,)
    many = polars.DataFrame({"x": [1, 2, 3]})
    assert con.sql("SELECT sum(x) FROM many").fetchone() == (6,)
    many[0, "x"] = 100
    assert con.sql("SELECT sum(x) FROM many").fetchone() == (105,)


def test_variables_become_tables_and_are_not_changed(con: warpline.Connection) -> None:
    trips = pa.table({"x": [1, 2]})
    for text in ["INSERT INTO trips VALUES (3)", "INSERT INTO trips VALUES (?)"]:
        with pytest.raises(warpline.Error, match="is a variable, which SQL does not change"):
            con.sql(text, [3] if "?" in text else None)
    con.sql("CREATE TABLE trips AS SELECT * FROM trips WHERE x > ?", [1])
    con.sql("INSERT INTO trips VALUES (3)")
    assert con.sql("SELECT x FROM trips ORDER BY x").fetchall() == [(2,), (3,)]
    more = polars.DataFrame({"x": [7]})  # noqa: F841
    con.sql("INSERT INTO trips SELECT x FROM more")
    assert con.sql("SELECT sum(x) FROM trips").fetchone() == (12,)
    assert trips.num_rows == 2


def test_queries_of_queries(con: warpline.Connection) -> None:
    base = pa.table({"g": [1, 1, 2], "x": [1, 2, 3]})
    sums = con.sql("SELECT g, sum(x) AS s FROM base GROUP BY g")
    top = con.sql("SELECT g FROM sums WHERE s > ?", [2])
    assert sorted(con.sql("SELECT g FROM top").fetchall()) == [(1,), (2,)]
    con.register("kept", sums)
    del base
    assert con.sql("SELECT max(s) FROM kept").fetchone() == (3,)
    assert con.sql("SELECT count(*) FROM sums JOIN top USING (g)").fetchone() == (2,)


def test_columns_of_a_variable_stay_on_the_device(emulator: warpline.Connection) -> None:
    for frame in [pa.table({"x": list(range(1000))}), polars.DataFrame({"x": range(1000)})]:
        text = "SELECT sum(x), count(*) FROM frame"
        assert emulator.sql(text).fetchone() == (499500, 1000)
        resident = emulator.memory().columns
        second = emulator.sql(text).execute()
        assert second.fetchone() == (499500, 1000)
        assert emulator.memory().columns == resident
        assert second.metrics is not None and second.metrics["plan_cached"]
    assert len(emulator._watched) >= 1


def test_rows_of_a_variable_go_with_it(cpu: warpline.Connection) -> None:
    before = pa.total_allocated_bytes()

    def ask() -> None:
        frame = pa.table({"x": pa.array(numpy.arange(1_000_000)).cast(pa.int32())})
        assert cpu.sql("SELECT max(x) FROM frame").fetchone() == (999_999,)
        assert pa.total_allocated_bytes() - before >= 4_000_000
        del frame

    # A frame of Python keeps what it had when its variables were looked at.
    ask()
    gc.collect()
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_registered_tables(con: warpline.Connection) -> None:
    con.register("t", pa.table({"x": [1, 2]}))
    con.register("t", polars.DataFrame({"y": ["a"]}))
    assert con.sql("SELECT * FROM t").fetchall() == [("a",)]
    con.register("odd name", {"x": [3]})
    assert con.sql('SELECT x FROM "odd name"').fetchone() == (3,)
    con.register("Mixed", {"x": [4]})
    assert con.sql("SELECT x FROM mixed").fetchone() == (4,)
    assert con.table("t").fetchall() == [("a",)]
    assert con.tables() == ["mixed", "odd name", "t"]
    con.unregister("t")
    with pytest.raises(warpline.Error, match="the tables are mixed, odd name"):
        con.unregister("t")
    with pytest.raises(warpline.Error, match="a int is no table"):
        con.register("t", 5)


def test_rows_keep_their_order_and_types(con: warpline.Connection) -> None:
    count = 200_000 if con.device == "cpu" else 3_000
    table = pa.table(
        {
            "i": pa.array(range(count), pa.int32()),
            "d": pa.array([None, "1.10"] * (count // 2)).cast(pa.decimal128(9, 2)),
            "c": pa.array(["red", "green"] * (count // 2)).dictionary_encode(),
            "t": pa.array(range(count), pa.timestamp("us", "UTC")),
            "l": pa.array(["x" * 20, None] * (count // 2), pa.large_string()),
        }
    )
    con.register("many", table)
    rows = con.sql("SELECT * FROM many").to_arrow()
    assert rows.num_rows == count
    assert rows.column("i").to_pylist() == list(range(count))
    assert rows.column("d").to_pylist()[:2] == [None, table.column("d")[1].as_py()]
    assert rows.column("c").to_pylist()[:2] == ["red", "green"]
    assert rows.column("t").to_pylist() == table.column("t").to_pylist()
    assert rows.column("l").to_pylist()[:2] == ["x" * 20, None]


def test_files(con: warpline.Connection, tmp_path: pathlib.Path) -> None:
    table = pa.table({"x": [1, 2, 3], "s": ["a", "b", None]})
    for number in range(2):
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet")
    assert con.read_parquet(tmp_path / "0.parquet").to_arrow().num_rows == 3
    assert con.read_parquet(str(tmp_path)).to_arrow().num_rows == 6
    assert len(con.read_parquet([tmp_path / "0.parquet", tmp_path / "1.parquet"])) == 6
    assert len(con.read_parquet(str(tmp_path / "*.parquet"))) == 6
    con.register("files", con.read_parquet(tmp_path))
    assert con.sql("SELECT sum(x) FROM files").fetchone() == (12,)
    assert con.sql(f"SELECT count(*) FROM '{tmp_path}/0.parquet'").fetchone() == (3,)
    pyarrow.parquet.write_table(table, tmp_path / "odd.pq")
    assert len(con.read_parquet(tmp_path / "odd.pq")) == 3

    (tmp_path / "t.csv").write_text("x;s\n1;a\n;b\n")
    read = con.read_csv(tmp_path / "t.csv", delimiter=";")
    assert read.fetchall() == [(1, "a"), (None, "b")]
    assert con.sql("SELECT max(x) FROM read").fetchone() == (1,)
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.write("1,a\n2,b\n")
    assert con.read_csv(tmp_path / "t.csv.gz", header=False).fetchall() == [(1, "a"), (2, "b")]

    (tmp_path / "t.json").write_text('{"x": 1}\n{"x": 2}\n')
    assert con.read_json(tmp_path / "t.json").fetchall() == [(1,), (2,)]
    (tmp_path / "array.json").write_text('[{"x": 1}, {"x": 2}]')
    assert con.read_json(tmp_path / "array.json", lines=False).fetchall() == [(1,), (2,)]

    con.sql(f"COPY (SELECT x FROM files WHERE x > 2) TO '{tmp_path}/out.parquet'")
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict() == {"x": [3, 3]}


def delta(folder: pathlib.Path, version: int, *actions: dict[str, object]) -> None:
    """A version of a Delta Lake table, by its protocol."""
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def delta_file(folder: pathlib.Path, name: str, rows: pa.Table) -> dict[str, object]:
    pyarrow.parquet.write_table(rows, folder / name)
    return {
        "add": {
            "path": name,
            "partitionValues": {},
            "size": (folder / name).stat().st_size,
            "modificationTime": 1700000000000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }
    }


def test_delta(con: warpline.Connection, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in [("x", "long"), ("s", "string")]]
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1700000000000,
    }
    first = delta_file(folder, "a.parquet", pa.table({"x": [1, 2, None], "s": ["a", "b", "c"]}))
    delta(folder, 0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}, first)
    con.register("orders", con.read_delta(folder))
    total = "SELECT sum(x), count(*), min(s) FROM orders WHERE s <> 'z'"
    assert con.sql(total).fetchone() == (3, 3, "a")
    delta(folder, 1, delta_file(folder, "b.parquet", pa.table({"x": [10], "s": ["d"]})))
    assert con.sql(total).fetchone() == (13, 4, "a")
    assert len(con.read_delta(str(folder), version=0)) == 3
    assert len(con.read_delta(str(folder), version=1)) == 4
    delta(folder, 2, {"remove": {"path": "a.parquet", "dataChange": True, "deletionTimestamp": 1700000000000}})
    assert con.sql(total).fetchone() == (10, 1, "d")
    with pytest.raises(warpline.Error, match="version"):
        con.read_delta(folder, version=9)
    with pytest.raises(warpline.Error, match="nowhere"):
        con.read_delta(tmp_path / "nowhere")


def test_delta_of_the_package(con: warpline.Connection, tmp_path: pathlib.Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    place = str(tmp_path / "t")
    deltalake.write_deltalake(place, pa.table({"x": [1, 2, 3]}))
    deltalake.write_deltalake(place, pa.table({"x": [4]}), mode="append")
    assert con.read_delta(place).to_arrow().num_rows == 4
    assert con.read_delta(place, version=0).to_arrow().num_rows == 3


def test_files_that_cannot_be_read(cpu: warpline.Connection, tmp_path: pathlib.Path) -> None:
    with pytest.raises(warpline.Error, match="missing"):
        cpu.read_parquet(tmp_path / "missing.parquet").fetchall()
    (tmp_path / "wrong.parquet").write_text("no parquet")
    with pytest.raises(warpline.Error, match="wrong.parquet|[Pp]arquet"):
        cpu.read_parquet(tmp_path / "wrong.parquet")
    with pytest.raises(warpline.Error, match="ASCII"):
        cpu.read_csv(tmp_path / "t.csv", delimiter="→")
    with pytest.raises(warpline.Error, match="no file is named"):
        cpu.read_csv([])
