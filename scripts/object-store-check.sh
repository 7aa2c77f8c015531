#!/usr/bin/env bash
# Tables in an object store: parquet files and a Delta Lake table in a local S3 server (moto), by the shell, by `warpline serve` and by the
# Python package if the dev build has it. Outside of CI: it installs moto, pyarrow and psycopg by pip.
#
#   scripts/object-store-check.sh [PROGRAM]      by default the dev build, target/debug/warpline
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/warpline"
target="${CARGO_TARGET_DIR:-$PWD/target}"
program="${1:-$target/debug/warpline}"
[ -x "$program" ] || { echo "there is no $program: run cargo build" >&2; exit 1; }

venv="$cache/python/moto-5-psycopg-3"
if [ ! -e "$venv/.complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q 'moto[server]==5.*' 'pyarrow>=16' 'psycopg[binary]==3.*'
  touch "$venv/.complete"
fi

work="$(mktemp -d)"
port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
"$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$work/server.log" 2>&1 &
server=$!
served=
trap 'kill "$server" $served 2>/dev/null || true; rm -rf "$work"' EXIT
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1 AWS_ALLOW_HTTP=true
export AWS_ENDPOINT="http://127.0.0.1:$port" AWS_ENDPOINT_URL="http://127.0.0.1:$port"

"$venv/bin/python" - "$work" <<'PY'
import io, json, sys, time, urllib.request
import boto3, pyarrow as pa, pyarrow.parquet as pq

for _ in range(100):
    try:
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="lake")
        break
    except Exception:
        time.sleep(0.1)

def put(key, body):
    s3.put_object(Bucket="lake", Key=key, Body=body)

def parquet(table):
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()

def add(key, table):
    data = parquet(table)
    put("orders/" + key, data)
    return {"add": {"path": key, "partitionValues": {}, "size": len(data), "modificationTime": 1700000000000, "dataChange": True,
                    "stats": json.dumps({"numRecords": table.num_rows})}}

def commit(version, *actions):
    put(f"orders/_delta_log/{version:020}.json", "".join(json.dumps(a) + "\n" for a in actions).encode())

put("elsewhere/secret/s.parquet", parquet(pa.table({"x": [99]})))
put("plain/a.parquet", parquet(pa.table({"x": [1, 2, 3]})))
put("plain/b.parquet", parquet(pa.table({"x": [4]})))
fields = [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]
metadata = {"id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9", "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": [], "configuration": {},
            "createdTime": 1700000000000}
commit(0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}, add("a.parquet", pa.table({"x": [1, 2]})))
commit(1, add("b.parquet", pa.table({"x": [10]})))

put("served/lines/1.parquet", parquet(pa.table({"x": [1, 2]})))
put("served/lines/2.parquet", parquet(pa.table({"x": [3]})))
put("served/log.csv", b"x\n2\n")
# The Delta table at the same versions.
for key in ["_delta_log/%020d.json" % 0, "_delta_log/%020d.json" % 1, "a.parquet", "b.parquet"]:
    s3.copy_object(Bucket="lake", Key="more/orders/" + key, CopySource="lake/orders/" + key)
PY

failed=0
expect() { # what, expected, got
  if [ "$2" = "$3" ]; then echo "ok    $1"; else echo "WRONG $1: expected '$2', got '$3'"; failed=1; fi
}
ask() { "$program" --device cpu -q --format csv -c "$1" 2>&1 | tail -n 1; }
expect "shell: parquet files" 10 "$(ask "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 's3://lake/plain/'; SELECT sum(x) FROM t;")"
expect "shell: Delta table" 13 "$(ask "CREATE EXTERNAL TABLE t STORED AS DELTATABLE LOCATION 's3://lake/orders'; SELECT sum(x) FROM t;")"
expect "shell: Delta table at version 0" 3 \
  "$(ask "CREATE EXTERNAL TABLE t STORED AS DELTATABLE LOCATION 's3://lake/orders' OPTIONS ('version' '0'); SELECT sum(x) FROM t;")"
expect "shell: INSERT INTO a Delta table" 20 \
  "$(ask "CREATE EXTERNAL TABLE t STORED AS DELTATABLE LOCATION 's3://lake/orders'; INSERT INTO t VALUES (7); SELECT sum(x) FROM t;")"
expect "shell: options win over the environment" 20 "$(AWS_ENDPOINT=http://127.0.0.1:1 AWS_ENDPOINT_URL=http://127.0.0.1:1 ask \
  "CREATE EXTERNAL TABLE t STORED AS DELTATABLE LOCATION 's3://lake/orders' OPTIONS ('aws.endpoint' '$AWS_ENDPOINT'); SELECT sum(x) FROM t;")"

# Served: two folders of the bucket, of which clients see the tables, and nothing else of it.
mkdir "$work/tables"
python3 -c 'print("y\n5")' >"$work/tables/local.csv"
"$program" serve --device cpu --postgres 127.0.0.1:0 --data "$work/tables" --data s3://lake/served --data s3://lake/more/ >"$work/served.out" \
  2>"$work/served.log" &
served=$!
for _ in $(seq 100); do grep -q '^postgresql' "$work/served.out" && break; sleep 0.1; done
address="$(sed -n 's/^postgresql *//p' "$work/served.out")"
[ -n "$address" ] || { cat "$work/served.out" "$work/served.log" >&2; exit 1; }
expect "serve: tables" "lines, local, log, orders" "$(sed -n 's/^tables *//p' "$work/served.out")"
expect "serve: answers, new files, and what is refused" "ok" "$("$venv/bin/python" - "$address" <<'PY'
import io, sys
import boto3, psycopg, pyarrow as pa, pyarrow.parquet as pq

s3 = boto3.client("s3")
con = psycopg.connect(sys.argv[1], autocommit=True)

def ask(sql):
    return con.execute(sql).fetchall()

def refused(sql, state):
    try:
        rows = ask(sql)
    except psycopg.Error as error:
        assert error.sqlstate == state, (sql, error.sqlstate, str(error))
    else:
        sys.exit(f"{sql}: not refused, {rows}")

def same(sql, expected):
    got = ask(sql)
    assert got == expected, (sql, got, expected)

same("SELECT sum(x) FROM lines", [(6,)])
same("SELECT sum(x) FROM log", [(2,)])
same("SELECT sum(x) FROM orders", [(13,)])
same("SELECT y FROM local", [(5,)])
out = io.BytesIO()
pq.write_table(pa.table({"x": [100]}), out)
s3.put_object(Bucket="lake", Key="served/lines/0.parquet", Body=out.getvalue())
same("SELECT sum(x) FROM lines", [(106,)])
refused("CREATE EXTERNAL TABLE s STORED AS PARQUET LOCATION 's3://lake/elsewhere/secret/'", "42501")
refused("SELECT * FROM 's3://lake/elsewhere/secret/s.parquet'", "42P01")
refused("COPY (SELECT 1) TO 's3://lake/served/lines/9.parquet'", "42501")
refused("INSERT INTO lines VALUES (1)", "42501")
refused("INSERT INTO orders VALUES (1)", "42501")
same("SELECT sum(x) FROM lines", [(106,)])
same("SELECT sum(x) FROM orders", [(13,)])
keys = [o["Key"] for o in s3.list_objects_v2(Bucket="lake", Prefix="served/")["Contents"]]
assert len(keys) == 4, keys
print("ok")
PY
)"
expect "serve: a prefix without tables" 1 "$("$program" serve --device cpu --postgres 127.0.0.1:0 --data s3://lake/none 2>&1 | grep -c 'no tables')"
expect "serve: no such store" 1 "$("$program" serve --device cpu --postgres 127.0.0.1:0 --data ftp://lake/none 2>&1 | grep -c 'object store')"

library="$target/debug/libwarpline_python.so"
if [ -e "$library" ]; then
  cp -r python/warpline "$work/warpline"
  ln -s "$(realpath "$library")" "$work/warpline/_native.abi3.so"
  got="$(PYTHONPATH="$work" "$venv/bin/python" - <<'PY'
import warpline
con = warpline.connect(device="cpu", progress=False)
parquet = con.read_parquet("s3://lake/plain/")
delta = con.read_delta("s3://lake/orders", version=1)
print(sum(r[0] for r in parquet.fetchall()), sum(r[0] for r in delta.fetchall()))
PY
)"
  expect "Python: parquet files and a Delta table" "10 13" "$got"
else
  echo "SKIPPED: Python: there is no $library"
fi
exit "$failed"
