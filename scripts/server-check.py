"""The clients of scripts/server-check.sh: each driver once, then many connections at a time."""

import argparse
import asyncio
import base64
import contextlib
import datetime
import decimal
import os
import pathlib
import random
import re
import socket
import ssl
import struct
import threading
import time
import urllib.request

import adbc_driver_flightsql.dbapi
import adbc_driver_postgresql.dbapi
import asyncpg
import psycopg

try:
    import pyodbc
except ImportError:  # It needs unixODBC, which not every machine has.
    pyodbc = None

parser = argparse.ArgumentParser()
for name in ("postgres", "flight", "http", "seconds", "pid"):
    parser.add_argument(f"--{name}", type=int, required=True)
parser.add_argument("--certificate", required=True)
parser.add_argument("--connections", type=int, default=64)
parser.add_argument("--queries", type=pathlib.Path, required=True, help="folder tpch/queries of the sources")
options = parser.parse_args()

URL = (
    f"postgresql://ada:lovelace@localhost:{options.postgres}/warpline"
    f"?sslmode=verify-full&sslrootcert={options.certificate}"
)
PRICING = """SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice * (1 - l_discount)), avg(l_discount), count(*)
FROM lineitem WHERE l_shipdate <= {} GROUP BY l_returnflag, l_linestatus ORDER BY 1, 2"""
REVENUE = """SELECT sum(l_extendedprice * l_discount) FROM lineitem
WHERE l_shipdate >= {} AND l_discount BETWEEN {} AND {} AND l_quantity < {}"""
SHIPPING = """SELECT o_orderpriority, count(*) FROM orders WHERE o_orderdate >= {} AND EXISTS (
SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY 1 ORDER BY 1"""
DAY = datetime.date(1998, 9, 2)
VALUES = (datetime.date(1994, 1, 1), decimal.Decimal("0.05"), decimal.Decimal("0.07"), 24)


def refused(call, *codes):
    """The call fails, with one of the codes in its error."""
    try:
        call()
    except Exception as error:  # noqa: BLE001: each driver has its own
        text = f"{getattr(error, 'sqlstate', '')} {error}"
        assert any(code in text for code in codes), text
    else:
        raise AssertionError(f"not refused: {codes}")


def with_psycopg():
    with psycopg.connect(URL) as connection:
        rows = connection.execute(PRICING.format("%s"), (DAY,)).fetchall()
        assert len(rows) == 4, rows
        revenue = connection.execute(REVENUE.format("%s", "%s", "%s", "%s"), VALUES).fetchone()[0]
        types = connection.execute(
            "SELECT 1::smallint, 2, 3::bigint, 1.5::real, 2.5::double precision, 1.20::decimal(10,2), true, 'x', NULL, "
            "DATE '2024-02-29', TIMESTAMP '2024-02-29 01:02:03', ARRAY[1, 2]"
        ).fetchone()
        assert types[:8] == (1, 2, 3, 1.5, 2.5, decimal.Decimal("1.20"), True, "x"), types
        assert types[8] is None and types[9] == datetime.date(2024, 2, 29) and types[11] == [1, 2], types
        for binary in (False, True):
            rows = connection.execute("SELECT n_nationkey, n_name FROM nation ORDER BY 1", binary=binary).fetchall()
            assert rows[0] == (0, "ALGERIA"), rows[0]
        with connection.cursor(name="pieces") as cursor:
            cursor.itersize = 1000
            cursor.execute("SELECT l_orderkey FROM lineitem")
            assert sum(1 for _ in cursor) > 50000
        with connection.cursor().copy("COPY (SELECT * FROM region) TO STDOUT") as copy:
            assert len(list(copy.rows())) == 5
    connection = psycopg.connect(URL, autocommit=True)
    for sql, code in (
        ("SET warpline.spill_directory = '/tmp'", "42501"),
        ("SET warpline.inject_failures = 'allocate:1'", "42501"),
        ("COPY (SELECT 1) TO '/tmp/x'", "42501"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'", "42501"),
        ("SELECT * FROM '/etc/passwd'", "42"),
        ("SELECT 1/0", "22012"),
        ("SELECT * FROM nowhere", "42P01"),
    ):
        refused(lambda sql=sql: connection.execute(sql), code)
    timer = threading.Timer(0.5, connection.cancel)
    timer.start()
    refused(lambda: connection.execute(LONG), "57014")
    connection.close()
    refused(lambda: psycopg.connect(URL.replace("lovelace", "wrong")), "password", "28P01")
    refused(lambda: psycopg.connect(URL.replace("verify-full", "disable")), "TLS", "28000")
    return revenue


LONG = "SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 1000000000) b"


async def with_asyncpg(revenue):
    context = ssl.create_default_context(cafile=options.certificate)
    connection = await asyncpg.connect(
        host="localhost", port=options.postgres, user="ada", password="lovelace", database="warpline", ssl=context
    )
    rows = await connection.fetch(PRICING.format("$1"), DAY)
    assert len(rows) == 4
    value = await connection.fetchval(REVENUE.format("$1", "$2", "$3", "$4"), *VALUES)
    assert value == revenue, (value, revenue)
    async with connection.transaction():
        count = 0
        async for _ in connection.cursor("SELECT o_orderkey FROM orders", prefetch=500):
            count += 1
        assert count == 15000, count
    try:
        await connection.fetch(LONG, timeout=0.5)
        raise AssertionError("no timeout")
    except asyncio.TimeoutError:
        pass
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


def with_adbc(revenue):
    with adbc_driver_postgresql.dbapi.connect(URL) as connection, connection.cursor() as cursor:
        cursor.execute(PRICING.format("$1"), (DAY,))
        assert cursor.fetch_arrow_table().num_rows == 4
        cursor.execute("SELECT n_name, n_nationkey FROM nation")
        assert cursor.fetch_arrow_table().num_rows == 25
    with flight() as connection, connection.cursor() as cursor:
        cursor.execute(PRICING.format(f"DATE '{DAY}'"))
        assert cursor.fetch_arrow_table().num_rows == 4
        cursor.execute("SELECT count(*) FROM lineitem WHERE l_quantity < ?", (24,))
        assert cursor.fetchone()[0] > 0
        tables = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        assert "lineitem" in str(tables)
        for sql in ("SET warpline.spill_directory = '/tmp'", "COPY (SELECT 1) TO '/tmp/x'"):
            refused(lambda sql=sql: (cursor.execute(sql), cursor.fetchall()), "42501")
    refused(lambda: flight("x").cursor().execute("SELECT 1"), "28P01", "28000")


def plain(rows):
    """Rows of any driver, to compare."""

    def value(found):
        if isinstance(found, float):
            return float(f"{found:.9g}")
        # ADBC's driver for PostgreSQL has no decimals.
        if isinstance(found, str) and re.fullmatch(r"-?\d+(\.\d+)?", found):
            found = decimal.Decimal(found)
        if isinstance(found, datetime.datetime):
            found = found.date()
        return found.normalize() if isinstance(found, decimal.Decimal) else found

    return [tuple(value(found) for found in row) for row in rows]


def odbc():
    return pyodbc.connect(
        f"Driver={{PostgreSQL Unicode}};Server=localhost;Port={options.postgres};Database=warpline;Uid=ada;Pwd=lovelace;"
        f"SSLmode=verify-full;pqopt={{sslrootcert={options.certificate}}};UseDeclareFetch=0"
    )


def flight(password="lovelace"):
    with open(options.certificate) as file:
        certificate = file.read()
    arguments = {"username": "ada", "password": password, "adbc.flight.sql.client_option.tls_root_certs": certificate}
    return adbc_driver_flightsql.dbapi.connect(f"grpc+tls://localhost:{options.flight}", db_kwargs=arguments)


async def asyncpg_answers(queries):
    context = ssl.create_default_context(cafile=options.certificate)
    connection = await asyncpg.connect(
        host="localhost", port=options.postgres, user="ada", password="lovelace", database="warpline", ssl=context
    )
    answers = [plain(tuple(row) for row in await connection.fetch(sql)) for sql in queries]
    await connection.close()
    return answers


def all_of_tpch():
    """The 22 queries of TPC-H by every driver; all say the same."""
    queries = []
    declared = (options.queries / "../src/queries.rs").read_text()
    for file, values in re.findall(r'template!\(\s*\d+,\s*"(q\d+\.sql)",\s*\[[^]]*\],\s*\[([^]]*)\]', declared):
        values = re.findall(r'"([^"]*)"', values)
        text = (options.queries / file).read_text()
        queries.append(re.sub(r":(\d+)", lambda place: values[int(place[1]) - 1], text))
    assert len(queries) == 22, len(queries)
    drivers = {
        "psycopg": lambda: psycopg.connect(URL),
        "adbc-postgresql": lambda: adbc_driver_postgresql.dbapi.connect(URL),
        "adbc-flightsql": flight,
    }
    if pyodbc:
        drivers["odbc"] = odbc
    answers = {"asyncpg": asyncio.run(asyncpg_answers(queries))}
    for name, connect in drivers.items():
        answers[name] = []
        with contextlib.closing(connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
            for sql in queries:
                cursor.execute(sql)
                answers[name].append(plain(cursor.fetchall()))
    for name, of_driver in answers.items():
        for number, (found, expected) in enumerate(zip(of_driver, answers["psycopg"]), 1):
            assert found == expected, (name, number, found[:2], expected[:2])
    print(f"22 queries of TPC-H by {', '.join(answers)}: equal")
    if not pyodbc:
        print("odbc: skipped, pyodbc is not installed")


def page(path):
    context = ssl.create_default_context(cafile=options.certificate)
    request = urllib.request.Request(f"https://localhost:{options.http}{path}")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"ada:lovelace").decode())
    with urllib.request.urlopen(request, context=context) as answer:
        return answer.read().decode()


def memory():
    with open(f"/proc/{options.pid}/status") as file:
        return int(next(line for line in file if line.startswith("VmRSS")).split()[1]) // 1024


def one_of_many(number, until, expected, times, wrong):
    choose = random.Random(number)
    connection = None
    while time.monotonic() < until:
        try:
            if connection is None:
                connection = psycopg.connect(URL, autocommit=True)
            what = choose.random()
            begun = time.monotonic()
            if what < 0.80:
                name = choose.choice(list(expected))
                rows = connection.execute(name).fetchall()
                if rows != expected[name]:
                    wrong.append(f"{name}: {rows}")
                times.append(time.monotonic() - begun)
            elif what < 0.86:
                timer = threading.Timer(0.1, connection.cancel)
                timer.start()
                refused(lambda: connection.execute(LONG), "57014")
                timer.join()
            elif what < 0.90:
                # Killed in the middle of an answer. The descriptor itself is the client's to close: another thread's connection
                # may have its number at once.
                connection.pgconn.send_query(b"SELECT * FROM lineitem")
                with socket.socket(fileno=os.dup(connection.pgconn.socket)) as killed:
                    killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    killed.shutdown(socket.SHUT_RDWR)
                connection.close()
                connection = None
            elif what < 0.94:
                with socket.create_connection(("localhost", choose.choice([options.postgres, options.flight, options.http]))) as other:
                    other.sendall(choose.randbytes(choose.randrange(1, 400)))
            elif what < 0.97:
                # Reads slowly, and not to the end.
                with connection.cursor() as cursor:
                    for _ in zip(range(5), cursor.stream("SELECT * FROM orders")):
                        time.sleep(0.05)
            else:
                refused(lambda: connection.execute("SELECT 1/0"), "22012")
        except (psycopg.OperationalError, OSError) as error:
            if "wait" not in str(error) and "cancel" not in str(error):
                wrong.append(f"{type(error).__name__}: {error}")
            connection = None
        except AssertionError as error:
            wrong.append(f"another error than was to be expected: {error}")
            connection = None


def load():
    queries = [PRICING.format(f"DATE '{DAY}'"), SHIPPING.format("DATE '1995-01-01'"), "SELECT count(*) FROM customer"]
    with psycopg.connect(URL) as connection:
        expected = {sql: connection.execute(sql).fetchall() for sql in queries}
    before, times, wrong = memory(), [], []
    until = time.monotonic() + options.seconds
    threads = [
        threading.Thread(target=one_of_many, args=(number, until, expected, times, wrong))
        for number in range(options.connections)
    ]
    for thread in threads:
        thread.start()
    half = None
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        if half is None and time.monotonic() > until - options.seconds / 2:
            half = memory()
    times.sort()
    print(
        f"{options.connections} connections, {options.seconds} s: {len(times)} queries, {len(times) / options.seconds:.1f}/s, "
        f"median {times[len(times) // 2]:.3f} s, p99 {times[len(times) * 99 // 100]:.3f} s, {len(wrong)} wrong"
    )
    time.sleep(2)
    after = memory()
    print(f"memory of the server: {before} MiB before, {half} half way, {after} after")
    for line in page("/metrics").splitlines():
        if line.split(" ")[0] in ("warpline_queries_running", "warpline_queries_waiting", "warpline_connections_open"):
            print(line)
    for line in wrong[:5]:
        print("  ", line)
    assert not wrong
    # What it keeps for later, and what its allocator holds back, is there by then.
    assert after < half + max(half / 4, 256), "the server's memory grows"


revenue = with_psycopg()
print("psycopg: ok")
asyncio.run(with_asyncpg(revenue))
print("asyncpg: ok")
with_adbc(revenue)
print("adbc: ok")
all_of_tpch()
assert "lineitem" in page("/") and page("/health") == "ok\n"
print("page: ok")
load()
