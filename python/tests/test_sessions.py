"""Sessions: devices, settings, functions, threads, Ctrl-C, forks, the program."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import warpline
import warpline.dbapi

ENDLESS = "SELECT count(*) FROM generate_series(1, 100000000000) AS a WHERE value % 7 = 3"


def test_devices_and_settings() -> None:
    assert any(line.startswith("cpu") for line in warpline.devices())
    with warpline.connect(device="cpu", time_limit="30s", plan_cache=False) as con:
        assert con.device == "cpu" and "cpu" in repr(con)
        assert con.settings()["warpline.time_limit"] == "30s"
        assert con.settings()["warpline.plan_cache"] == "false"
        con.set("datafusion.execution.batch_size", 100)
        assert con.settings()["datafusion.execution.batch_size"] == "100"
        assert "the CPU answers" in str(con.memory()) and con.evict() == 0
        with pytest.raises(warpline.Error, match="pinned in device memory"):
            con.pin("t")
    for wrong, message in [
        ({"device": "gpu"}, "give one of auto"),
        ({"device": "cpu", "device_memory": "much"}, "much"),
        ({"device": "cpu", "nope": 1}, "nope"),
        ({"device": "cpu", "min_rows": "x"}, "x"),
    ]:
        with pytest.raises(warpline.Error, match=message):
            warpline.connect(**wrong)  # type: ignore[arg-type]
    with warpline.connect(device="emulator", device_memory=64 << 20) as con:
        assert con.memory().budget == 64 << 20


def test_several_devices_share_a_query() -> None:
    table = pa.Table.from_batches(pa.table({"k": [i % 7 for i in range(4000)], "v": list(range(4000))}).to_batches(500))
    settings = {"shards": 2, "min_rows": 0, "datafusion.execution.batch_size": 100}
    with warpline.connect(device="emulator:2", device_memory=64 << 20, **settings) as con:  # type: ignore[arg-type]
        assert con.device == "emulator:0, emulator:1"
        con.register("t", table)
        rows = con.sql("SELECT k, sum(v) AS s FROM t GROUP BY k ORDER BY k").to_arrow()
        assert rows["s"].to_pylist() == [sum(range(k, 4000, 7)) for k in range(7)]
        memory = con.memory()
        assert [device.name for device in memory.devices] == ["emulator:0", "emulator:1"]
        assert memory.budget == 2 * (64 << 20)
        assert "emulator:1" in str(memory)
    with pytest.raises(warpline.Error, match="twice"):
        warpline.connect(device="cuda:0,0")


def test_memory_and_pins(emulator: warpline.Connection) -> None:
    emulator.register("t", pa.table({"x": [1, 2, 3], "l": [[1], [2], [3]]}))
    pin = emulator.pin("t")
    assert (pin.table, pin.rows, pin.columns, pin.not_pinned) == ("t", 3, 2, [])
    memory = emulator.memory()
    assert memory.device == "emulator" and memory.in_use > 0
    assert any(column.column == "x" and column.rows == 3 for column in memory.columns)
    assert "in use" in str(memory)
    emulator.unpin("t")
    with pytest.raises(warpline.Error, match="not pinned"):
        emulator.unpin("t")
    assert emulator.evict() > 0


def test_functions(con: warpline.Connection) -> None:
    con.register("t", pa.table({"x": [1, 2, None], "s": ["a", "b", "c"]}))
    con.create_function("twice", lambda x: pc.multiply(x, 2), ["int64"], pa.int64())
    assert con.sql("SELECT twice(x) FROM t ORDER BY s").fetchall() == [(2,), (4,), (None,)]
    assert con.sql("SELECT sum(twice(x)) FROM t WHERE twice(x) > 2").fetchone() == (4,)
    con.create_function("length2", lambda s: [len(v) * 2 for v in s.to_pylist()], [str], int)
    assert con.sql("SELECT length2(s || 'x') FROM t LIMIT 1").fetchone() == (4,)
    con.create_function("root", lambda x: numpy.sqrt(x.to_numpy(zero_copy_only=False)), [float], float)
    assert con.sql("SELECT root(4.0)").fetchone() == (2.0,)
    con.create_function("join2", lambda a, b: f"{a}-{b}", [int, str], str, vectorized=False)
    assert con.sql("SELECT join2(x, s) FROM t ORDER BY s").fetchall() == [("1-a",), ("2-b",), ("None-c",)]
    con.create_function("ones", lambda rows: [1] * rows, [], int, volatility="volatile")
    assert con.sql("SELECT sum(ones()) FROM t").fetchone() == (3,)
    # The result is converted to what was declared.
    con.create_function("small", lambda x: pa.array(x.to_pylist(), pa.int64()), [int], "int32")
    assert con.sql("SELECT small(x) FROM t").schema.field(0).type == pa.int32()
    # A later function takes the place of an earlier one.
    con.create_function("twice", lambda x: pc.multiply(x, 20), [int], int)
    assert con.sql("SELECT twice(x) FROM t WHERE x = 1").fetchone() == (20,)


def test_functions_that_fail(con: warpline.Connection) -> None:
    con.register("t", pa.table({"x": [1, 2]}))

    def failing(x: pa.Array) -> pa.Array:
        raise LookupError("no such thing")

    con.create_function("failing", failing, [int], int)
    with pytest.raises(warpline.Error, match="the function 'failing' failed: LookupError: no such thing") as caught:
        con.sql("SELECT failing(x) FROM t").fetchall()
    assert isinstance(caught.value.__cause__, LookupError)
    con.create_function("short", lambda x: [1], [int], int)
    with pytest.raises(warpline.Error, match="1 values for 2 rows"):
        con.sql("SELECT short(x) FROM t").fetchall()
    con.create_function("texts", lambda x: ["a", "b"], [int], pa.int64())
    with pytest.raises(warpline.Error, match="texts"):
        con.sql("SELECT texts(x) FROM t").fetchall()
    con.create_function("nested", lambda x: con.sql("SELECT 1").to_arrow().column(0), [int], int)
    with pytest.raises(warpline.Error, match="cannot wait for another query"):
        con.sql("SELECT nested(x) FROM t").fetchall()
    with pytest.raises(warpline.Error, match="no type of a function"):
        con.create_function("wrong", failing, ["nothing"], int)
    with pytest.raises(warpline.Error, match="no volatility"):
        con.create_function("wrong", failing, [int], int, volatility="often")
    assert con.sql("SELECT count(*) FROM t").fetchone() == (2,)


@contextlib.contextmanager
def interrupt() -> Iterator[None]:
    """Ctrl-C in a moment.

    A process that a shell starts in the background ignores it, and Python then has no handler: the block has Python's own.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        # Also where the block fails: nobody else is interrupted.
        timer.cancel()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("read", ["to_arrow", "fetchone", "stream", "statement", "repr"])
def test_ctrl_c_cancels_and_the_session_lives_on(cpu: warpline.Connection, read: str) -> None:
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupt():
        if read == "to_arrow":
            cpu.sql(ENDLESS).to_arrow()
        elif read == "fetchone":
            cpu.sql(ENDLESS).fetchone()
        elif read == "stream":
            try:
                pa.table(cpu.sql(ENDLESS))
            except pa.ArrowException as error:
                # The reader knows only texts; the interrupt comes behind it.
                assert "Ctrl-C" in str(error)
                time.sleep(1)
        elif read == "statement":
            cpu.sql(f"CREATE TABLE t AS {ENDLESS}")
        else:
            repr(cpu.sql(ENDLESS))
    assert time.monotonic() - begun < 5
    assert cpu.sql("SELECT 1").fetchone() == (1,)
    assert cpu.tables() == []


def test_other_threads_run_while_a_query_does(cpu: warpline.Connection) -> None:
    ticks = 0
    done = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    cpu.sql("SELECT count(*) FROM generate_series(1, 20000000) AS a WHERE value % 7 = 3").fetchone()
    done.set()
    thread.join()
    assert ticks > 10


def test_one_connection_in_many_threads(con: warpline.Connection) -> None:
    con.register("t", pa.table({"x": list(range(1000))}))
    answers: list[object] = []

    def ask(number: int) -> None:
        mine = pa.table({"y": [number]})  # noqa: F841
        answers.append(con.sql(f"SELECT sum(x) + {number} + (SELECT y FROM mine) FROM t").fetchone())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [(499500 + 2 * number,) for number in range(8)]  # type: ignore[type-var]


def in_fork(con: warpline.Connection, pipe: object) -> None:
    answers: list[object] = []
    for work in (lambda: con.sql("SELECT 1"), lambda: warpline.connect(device="cpu").sql("SELECT 2").fetchone()):
        try:
            answers.append(work())
        except warpline.Error as error:
            answers.append(str(error))
    pipe.send(answers)  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_is_refused_and_does_not_hang(cpu: warpline.Connection) -> None:
    assert cpu.sql("SELECT 1").fetchone() == (1,)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=in_fork, args=(cpu, there))
    process.start()
    assert here.poll(20)
    answers = here.recv()
    process.join(20)
    assert len(answers) == 2 and all("'spawn'" in answer for answer in answers), answers
    assert process.exitcode == 0
    assert cpu.sql("SELECT 3").fetchone() == (3,)


def test_a_process_forked_before_the_first_connection_connects() -> None:
    forked = python(
        "-c",
        "import os, warpline\n"
        "child = os.fork()\n"
        "with warpline.connect(device='cpu') as con:\n"
        "    print(con.sql('SELECT 2').fetchone(), flush=True)\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0",
    )
    # Both write to one pipe: their line ends may come later.
    assert (forked.returncode, forked.stdout.replace("\n", "")) == (0, "(2,)(2,)"), forked.stderr


def python(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_the_program() -> None:
    shell = python("-m", "warpline", "-q", "--device", "cpu", "--format", "csv", "-c", "SELECT 1 AS x")
    assert (shell.returncode, shell.stdout) == (0, "x\n1\n"), shell.stderr
    assert "devices" in python("-m", "warpline", "--help").stdout
    assert python("-m", "warpline", "--version").stdout.startswith("warpline ")
    wrong = python("-m", "warpline", "--device", "cpu", "-c", "SELEC")
    assert wrong.returncode == 1 and "warpline: error:" in wrong.stderr
    assert python("-m", "warpline", "--nope").returncode == 2


def test_kernels_are_compiled_by_helpers_of_this_interpreter() -> None:
    library = os.environ.get("WARPLINE_NVRTC")
    if not library:
        pytest.skip("WARPLINE_NVRTC names no library")
    shown = python("-c", "import warpline; print('\\n'.join(warpline.devices()))")
    assert shown.returncode == 0, shown.stderr
    assert f"of {sys.executable}" in shown.stdout and "compiled by" in shown.stdout, shown.stdout
    # Where helpers cannot be had, the library is used here.
    alone = python("-c", "import warpline; print('\\n'.join(warpline.devices()))", WARPLINE_COMPILER="/bin/false")
    assert "in this process" in alone.stdout, alone.stdout
    # The program's own way is the same.
    program = python("-m", "warpline", "devices")
    assert f"of {sys.executable}" in program.stdout, program.stdout


def test_a_helper_serves_its_parent_alone() -> None:
    helper = pathlib.Path(warpline.__file__).parent / "_compiler.py"
    for parent in [str(os.getpid()), "1"]:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", str(helper), "--compile-kernels-for", parent],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_the_end_of_the_interpreter_waits_for_nothing() -> None:
    code = (
        "import warpline\n"
        "con = warpline.connect(device='cpu')\n"
        f"rows = iter(con.sql('''{ENDLESS.replace('count(*)', 'value')}'''))\n"
        "next(rows)\n"
        "reader = con.sql('SELECT 1').batches()\n"
    )
    begun = time.monotonic()
    ended = python("-c", code)
    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - begun < 15


def test_progress(capfd: pytest.CaptureFixture[str]) -> None:
    with warpline.connect(device="cpu", progress=True) as con:
        con.create_function("slow", lambda x: time.sleep(1.2) or x, [int], int, volatility="volatile")
        con.sql("SELECT slow(1)").to_arrow()
        assert "on the CPU (Ctrl-C cancels)" in capfd.readouterr().err
        con.sql("SELECT 1").to_arrow()
        assert capfd.readouterr().err == ""


def test_dbapi() -> None:
    dbapi = warpline.dbapi
    assert (dbapi.apilevel, dbapi.paramstyle, dbapi.threadsafety) == ("2.0", "qmark", 2)
    with dbapi.connect(device="cpu") as con:
        cur = con.cursor()
        cur.execute("CREATE TABLE t (x BIGINT, s VARCHAR)")
        cur.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, None), (3, "c")])
        cur.execute("SELECT x, s FROM t WHERE x > ? ORDER BY x", [1])
        assert cur.description is not None
        assert [entry[0] for entry in cur.description] == ["x", "s"]
        assert cur.description[0][1] == dbapi.NUMBER and cur.description[1][1] == dbapi.STRING
        assert cur.description[0][1] != dbapi.STRING
        assert cur.fetchone() == (2, None)
        assert cur.fetchmany(5) == [(3, "c")] and cur.fetchone() is None
        assert list(cur.execute("SELECT x FROM t ORDER BY x")) == [(1,), (2,), (3,)]
        con.commit()
        for wrong, kind in [
            (lambda: con.rollback(), dbapi.NotSupportedError),
            (lambda: con.cursor().fetchone(), dbapi.ProgrammingError),
            (lambda: con.cursor().execute("SELEC"), dbapi.DatabaseError),
            (lambda: con.cursor().execute("SELECT 1 / (x - x) FROM t").fetchall(), dbapi.DatabaseError),
        ]:
            with pytest.raises(kind):
                wrong()
            with pytest.raises(warpline.Error):
                wrong()
        cur.close()
        with pytest.raises(dbapi.InterfaceError):
            cur.execute("SELECT 1")
    with pytest.raises(dbapi.InterfaceError):
        con.cursor()
