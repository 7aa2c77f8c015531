#!/bin/sh
# Runs clients of PostgreSQL and Flight SQL against a server of `warpline`, and then many of them at once.
#
#   scripts/server-check.sh PROGRAM [SECONDS]
#
# PROGRAM is a `warpline`, SECONDS how long the load lasts (60). Needs psql, python3 with venv, openssl and the network for pip, unless
# $WARPLINE_VENV names a virtual environment with psycopg[binary], asyncpg, adbc-driver-postgresql, adbc-driver-flightsql and pyarrow.
# ODBC is tried where that has pyodbc and the machine odbc-postgresql.
set -eu
program=${1:?the program}
seconds=${2:-60}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
venv=${WARPLINE_VENV:-$work/venv}
if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" -q install 'psycopg[binary]' asyncpg adbc-driver-manager adbc-driver-postgresql adbc-driver-flightsql pyarrow
fi
"$program" tpch generate --scale 0.01 --output "$work/data"
echo lovelace | "$program" serve --auth "$work/users" --add-user ada
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/certificate.pem" 2>/dev/null
"$program" serve --postgres 127.0.0.1:0 --flight 127.0.0.1:0 --http 127.0.0.1:0 --data "$work/data" \
    --auth "$work/users" --tls-cert "$work/certificate.pem" --tls-key "$work/key.pem" --device "${WARPLINE_DEVICE:-auto}" \
    --query-log "$work/queries.json" >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 600); do
    grep -q '^page' "$work/server.log" && break
    kill -0 "$server" 2>/dev/null || { cat "$work/server.log"; exit 1; }
    sleep 0.1
done
cat "$work/server.log"
port() { sed -n "s/^$1 .*:\([0-9]*\)$/\1/p" "$work/server.log"; }
PGPASSWORD=lovelace psql "host=localhost port=$(port postgresql) user=ada sslmode=verify-full sslrootcert=$work/certificate.pem" -v ON_ERROR_STOP=1 \
    -c '\d' -c '\d lineitem' -c 'SELECT l_returnflag, count(*), avg(l_quantity) FROM lineitem GROUP BY 1 ORDER BY 1' \
    -c '\copy (SELECT n_name FROM nation ORDER BY 1 LIMIT 3) TO STDOUT'
"$venv/bin/python" "$here/server-check.py" --postgres "$(port postgresql)" --flight "$(port flight)" --http "$(port page)" \
    --certificate "$work/certificate.pem" --queries "$here/../tpch/queries" --seconds "$seconds" --pid "$server"
kill "$server"
wait "$server" || { echo "the server ended with $?"; exit 1; }
server=
echo "queries in the log: $(wc -l <"$work/queries.json")"
