"""A connection: a session with its tables, settings and functions, on a device."""

from __future__ import annotations

import datetime
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from . import _frames, _types
from ._native import Error, Query, Session
from ._progress import Progress
from ._result import Result


@dataclass(frozen=True)
class ResidentColumn:
    """A column that the device holds."""

    table: str
    column: str
    rows: int
    bytes: int
    encoding: str


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one of the devices of a connection; sizes are in bytes."""

    #: The device in words.
    name: str
    #: The most that is used.
    budget: int
    #: In use by columns, indexes and queries.
    in_use: int
    #: Of the columns.
    column_bytes: int
    #: Why the device is lost, if it is.
    lost: str | None


@dataclass(frozen=True)
class Memory:
    """The device's memory at one moment, of several devices the sum; sizes are in bytes. On the CPU all of it is empty."""

    #: The device in words.
    device: str
    #: The most that is used.
    budget: int = 0
    #: In use by columns, indexes and queries.
    in_use: int = 0
    #: The most so far.
    peak: int = 0
    #: Free blocks that are kept for reuse.
    free_blocks: int = 0
    #: Of the columns.
    column_bytes: int = 0
    #: Indexes that are kept, and their bytes.
    indexes: int = 0
    index_bytes: int = 0
    #: Queries that run on the device.
    queries: int = 0
    #: Why the device is lost, if it is.
    lost: str | None = None
    #: The columns, in the order of their tables.
    columns: list[ResidentColumn] = field(default_factory=list, repr=False)
    #: Each device.
    devices: list[DeviceMemory] = field(default_factory=list, repr=False)
    _text: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self._text or f"the CPU answers ({self.device}): no device memory is in use"


@dataclass(frozen=True)
class Pin:
    """A table that stays in device memory until `Connection.unpin`."""

    table: str
    rows: int
    columns: int
    bytes: int
    #: Columns of types that the device does not hold.
    not_pinned: list[str]


def connect(
    device: str = "auto",
    device_memory: str | int | None = None,
    *,
    progress: bool | None = None,
    cluster: Sequence[str] = (),
    cluster_secret_file: str | None = None,
    cluster_ca: str | None = None,
    **settings: object,
) -> Connection:
    """Opens a session.

    `device` is `auto` (the first usable GPU, else the CPU), `cuda`, `cuda:N`, `cpu`, or `emulator`, which runs every kernel without a
    GPU and is for tests; or several that share queries, as `cuda:0,1`, `cuda:all` or `emulator:2`. `device_memory` bounds what is used
    of each device's memory: `"16GiB"`, or a number of bytes. Connections of one device share its memory and what it holds.

    `progress` shows long statements on terminals and in notebooks, where they are seen; True does so anywhere, False nowhere.

    `cluster` are the addresses of workers (`warpline worker`) that answer queries of files together, `cluster_secret_file` is the file of their
    secret, and `cluster_ca` one of certificates that theirs are checked with.

    Other keywords are settings, without `warpline.` before them: `min_rows=0`, `time_limit="30s"`. Those of DataFusion have their
    full names: `**{"datafusion.execution.batch_size": 4096}`.

    >>> import warpline
    >>> with warpline.connect(device="cpu", time_limit="30s") as con:
    ...     con.sql("SELECT 1 + 1").fetchone()
    (2,)
    """
    given = [(_setting_name(name), _setting_value(value)) for name, value in settings.items()]
    memory = None if device_memory is None else str(device_memory)
    session = Session(device, memory, given, list(cluster), cluster_secret_file, cluster_ca)
    return Connection(session, progress)


class Connection:
    """A session: made by `connect`, used by one thread or several, closed by `close` or at the end of a `with` block."""

    def __init__(self, session: Session, progress: bool | None = None) -> None:
        self._session = session
        self._wants_progress = progress
        self._watched: set[int] = set()

    def sql(self, text: str, params: Sequence[object] | Mapping[str, object] | None = None) -> Result:
        """Plans a query, whose `Result` runs when its rows are wanted; runs any other statement (`CREATE TABLE`, `INSERT`, `COPY`,
        `SET`, …) at once.

        Of several statements, with semicolons between them, the answer of the last one is returned.

        `params` are the values of `?` and `$1` as a list, of `$name` as a dict. A table that the session does not have may be a
        variable of the caller: a pandas or polars DataFrame, a pyarrow Table, a `Result`, a dict of lists, or anything with
        `__arrow_c_stream__`. Files are tables by their names: `FROM 'trips.parquet'`.

        >>> import pandas
        >>> import warpline
        >>> con = warpline.connect()
        >>> trips = pandas.DataFrame({"city": ["Oslo", "Rome"], "km": [7, 5]})
        >>> con.sql("SELECT city FROM trips WHERE km > ?", [6]).fetchall()
        [('Oslo',)]
        >>> con.sql("SELECT km FROM trips WHERE city = $city", {"city": "Rome"}).fetchall()
        [(5,)]
        """
        lookup = _frames.lookup_in(_frames.caller(), self._watch, self._session.copy_from_gpu)
        values = _frames.as_params(params)
        statements = Session.statements(text)
        if len(statements) > 1 and values is not None:
            raise Error(f"parameters are for one statement, and the text has {len(statements)}: give them one by one")
        with self._progress() as progress:
            for statement in statements[:-1]:
                self._session.sql(statement, None, lookup, progress)
            return self._result(self._session.sql(statements[-1] if statements else text, values, lookup, progress))

    def execute(self, text: str, params: Sequence[object] | Mapping[str, object] | None = None) -> Result:
        """As `sql`, but a query runs at once and its rows are kept."""
        return self.sql(text, params).execute()

    def table(self, name: str) -> Result:
        """All rows of a table.

        >>> import warpline
        >>> con = warpline.connect()
        >>> con.register("t", {"x": [1, 2]})
        >>> con.table("t").fetchall()
        [(1,), (2,)]
        """
        return self._result(self._session.sql(f"SELECT * FROM {_quoted(name)}", None, _no_table, None))

    def tables(self) -> list[str]:
        """The names of the tables, with their schemas where these are not the default."""
        shown = (
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema <> 'information_schema' ORDER BY table_schema, table_name"
        )
        found = self._session.sql(shown, None, _no_table, None)
        rows = self._result(found).fetchall()
        return [name if schema == "public" else f"{schema}.{name}" for schema, name in rows]

    # Tables from elsewhere.

    def register(self, name: str, table: object) -> None:
        """Makes a table of rows that are elsewhere: a pandas or polars DataFrame, a pyarrow Table or RecordBatch, a numpy array, a
        dict of lists, a `Result`, or anything with `__arrow_c_stream__`; a dict of arrays of CuPy or PyTorch on the GPU, a DataFrame
        of cuDF, a `DeviceResult`. One of the same name goes.

        Rows of pandas and numpy are copied, since they may be changed in place, and so are rows on a GPU, to the host; those of
        others stay where they are. A stream is read to its end. A `Result` of a query is a view. A table that many queries read is best registered: its columns stay on
        the device.

        >>> import polars
        >>> import warpline
        >>> con = warpline.connect()
        >>> con.register("n", polars.DataFrame({"x": [1, 2, 3]}))
        >>> con.sql("SELECT sum(x) FROM n").fetchone()
        (6,)
        """
        found = _frames.as_table(table, self._session.copy_from_gpu)
        if found is None:
            raise Error(
                f"a {type(table).__name__} is no table: give a pandas or polars DataFrame, a pyarrow Table, a dict of lists, a "
                "Result, or an object with __arrow_c_stream__"
            )
        self._watch(found)
        self._session.register(_quoted_if_needed(name), *found)

    def unregister(self, name: str) -> None:
        """Takes away a table that `register` or `CREATE` made."""
        if not self._session.unregister(_quoted_if_needed(name)):
            raise Error(f"there is no table '{name}': the tables are {', '.join(self.tables()) or 'none'}")

    def read_parquet(self, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Result:
        """The rows of parquet files: a file, a folder, a pattern with `*`, or a list of these. Only the columns and row groups are
        read that a query needs; `register` gives the files a name.

        >>> import os, tempfile
        >>> import pyarrow as pa, pyarrow.parquet
        >>> import warpline
        >>> path = os.path.join(tempfile.mkdtemp(), "n.parquet")
        >>> pyarrow.parquet.write_table(pa.table({"n": [1, 2, 3]}), path)
        >>> con = warpline.connect()
        >>> con.register("numbers", con.read_parquet(path))
        >>> con.sql("SELECT max(n) FROM numbers").fetchone()
        (3,)
        """
        paths, extension = _paths(path, ".parquet")
        return self._result(self._session.read_parquet(paths, extension))

    def read_csv(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        header: bool = True,
        delimiter: str = ",",
        quote: str = '"',
        escape: str | None = None,
        comment: str | None = None,
        newlines_in_values: bool = False,
        sample_rows: int = 1000,
        compression: str | None = None,
    ) -> Result:
        """The rows of CSV files, whose types are told from the first `sample_rows`; empty values are NULL. `compression` is told from the name (`.gz`, `.bz2`, `.xz`, `.zst`) if it is not given.

        >>> import os, tempfile
        >>> import warpline
        >>> path = os.path.join(tempfile.mkdtemp(), "n.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("n;s\\n1;a\\n2;b\\n")
        >>> warpline.connect().read_csv(path, delimiter=";").fetchall()
        [(1, 'a'), (2, 'b')]
        """
        paths, extension = _paths(path, ".csv")
        kind = compression if compression is not None else _compression(extension)
        return self._result(
            self._session.read_csv(
                paths,
                extension,
                header=header,
                delimiter=delimiter,
                quote=quote,
                escape=escape,
                comment=comment,
                newlines=newlines_in_values,
                sample=sample_rows,
                compression=kind,
            )
        )

    def read_json(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        lines: bool = True,
        sample_rows: int = 1000,
        compression: str | None = None,
    ) -> Result:
        """The rows of JSON files: an object a line, or with `lines=False` one array of objects.

        >>> import os, tempfile
        >>> import warpline
        >>> path = os.path.join(tempfile.mkdtemp(), "n.json")
        >>> with open(path, "w") as file:
        ...     _ = file.write('{"n": 1}\\n{"n": 2}\\n')
        >>> warpline.connect().read_json(path).fetchall()
        [(1,), (2,)]
        """
        paths, extension = _paths(path, ".json")
        kind = compression if compression is not None else _compression(extension)
        return self._result(self._session.read_json(paths, extension, lines, sample_rows, kind))

    def read_delta(
        self,
        path: str | os.PathLike[str],
        version: int | None = None,
        *,
        timestamp: str | datetime.datetime | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Result:
        """The rows of a Delta Lake table in a folder or at a URL: of its latest version at each query, or of `version`, or of the last
        version before or at `timestamp`. `storage_options` are those of the object store, by the names of the environment's
        variables, such as `aws_region`.

            con.register("orders", con.read_delta("lake/orders"))
            con.read_delta("s3://bucket/orders", version=3).to_pandas()
        """
        place = os.fspath(path)
        if "://" not in place:
            place = os.path.expanduser(place)
        moment = timestamp.isoformat() if isinstance(timestamp, datetime.datetime) else timestamp
        options = {str(name): str(value) for name, value in (storage_options or {}).items()}
        return self._result(self._session.read_delta(place, version, moment, options))

    # Functions.

    def create_function(
        self,
        name: str,
        function: Callable[..., object],
        args: Sequence[object],
        returns: object,
        *,
        vectorized: bool = True,
        volatility: str = "immutable",
    ) -> None:
        """Makes a Python function one of SQL.

        It is called with a pyarrow Array for each argument, and returns an array of as many values (of pyarrow, numpy, pandas or
        polars, or a list); one without arguments is called with the number of values that are wanted. With `vectorized=False` it is
        called for each row with Python values. `args` and `returns` are types of pyarrow, names of types (`"int64"`, `"string"`) or
        Python's (`int`, `float`, `str`, `bool`, `bytes`, `datetime.date`, …).

        `volatility` is `immutable` where equal arguments give equal results, else `stable` (within a query) or `volatile`.

        >>> import pyarrow.compute
        >>> import warpline
        >>> con = warpline.connect()
        >>> con.create_function("twice", lambda x: pyarrow.compute.multiply(x, 2), [int], int)
        >>> con.create_function("shout", lambda s: s.upper() + "!", [str], str, vectorized=False)
        >>> con.sql("SELECT twice(21), shout('hey')").fetchone()
        (42, 'HEY!')
        """
        types = [_types.of(kind) for kind in args]
        result = _types.of(returns)
        called = _types.vectorized(function, result) if vectorized else _types.by_row(function, result, len(types))
        self._session.create_function(name, called, types, result, volatility)

    # The device and the settings.

    @property
    def device(self) -> str:
        """The device in words: `NVIDIA H200 (cuda:0)`, `emulator`, `cpu`."""
        return self._session.device()

    def set(self, name: str, value: object) -> None:
        """Sets a setting, as `SET name = value` does; `warpline.` may be left out.

        >>> import warpline
        >>> con = warpline.connect()
        >>> con.set("time_limit", "10s")
        >>> con.settings()["warpline.time_limit"]
        '10s'
        """
        self._session.set(_setting_name(name), _setting_value(value))

    def settings(self) -> dict[str, str | None]:
        """All settings of Warpline and DataFusion; `con.sql("SHOW warpline.*")` tells what they mean."""
        shown = "SELECT name, value FROM information_schema.df_settings ORDER BY name"
        return dict(self._result(self._session.sql(shown, None, _no_table, None)).fetchall())

    def pin(self, table: str) -> Pin:
        """Loads a table into device memory, where it stays until `unpin`: no query waits for it."""
        answer = self._result(self._session.sql(f"PIN TABLE {_quoted_if_needed(table)}", None, _no_table, None))
        name, rows, columns, size, skipped = answer.fetchall()[0]
        return Pin(name, rows, columns, size, skipped.split(", ") if skipped else [])

    def unpin(self, table: str) -> None:
        """Lets a pinned table be evicted again."""
        self._session.sql(f"UNPIN TABLE {_quoted_if_needed(table)}", None, _no_table, None)

    def memory(self) -> Memory:
        """What the device's memory holds.

        >>> import warpline
        >>> warpline.connect(device="cpu").memory().in_use
        0
        """
        known = self._session.memory()
        if known is None:
            return Memory(self._session.device())
        text = known.pop("text")
        columns = [ResidentColumn(**column) for column in known.pop("columns")]
        devices = [DeviceMemory(**device) for device in known.pop("devices")]
        return Memory(self._session.device(), columns=columns, devices=devices, _text=text, **known)

    def evict(self) -> int:
        """Lets go of columns and indexes that are kept for later queries; returns their bytes."""
        return self._session.evict()

    # Its end.

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._session.is_closed()

    def close(self) -> None:
        """Ends the session: its tables go, and the device's memory if no other connection uses it. Rows that were read stay."""
        self._session.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<warpline.Connection, closed>" if self.closed else f"<warpline.Connection on {self.device}>"

    def _progress(self) -> Progress:
        return Progress(self._wants_progress, self._session.state)

    def _result(self, query: Query) -> Result:
        return Result(query, self._progress)

    def _watch(self, table: _frames.Table) -> None:
        """When an object goes whose rows are remembered, these go, too."""
        address = id(table.object)
        if table.use != "remember" or address in self._watched:
            return
        try:
            session = weakref.ref(self._session)
            weakref.finalize(table.object, _forget, session, self._watched, address).atexit = False
            self._watched.add(address)
        except TypeError:
            # Not all objects can be watched: the rows of these go when others take their place.
            pass


def _no_table(name: str) -> None:
    """Statements of this package name no variables."""


def _forget(session: weakref.ref[Session], watched: set[int], address: int) -> None:
    watched.discard(address)
    living = session()
    if living is not None:
        living.forget(address)


def _setting_name(name: str) -> str:
    return name if "." in name else f"warpline.{name}"


def _setting_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _quoted(name: str) -> str:
    """A name as it is, between quotes; points separate schema and table."""
    return ".".join(part if part.startswith('"') else '"' + part.replace('"', '""') + '"' for part in name.split("."))


def _quoted_if_needed(name: str) -> str:
    """A name as SQL would read it without quotes, or between quotes where it could not."""
    plain = all(part.isidentifier() and part.isascii() for part in name.split("."))
    return name if plain or name.startswith('"') else _quoted(name)


def _paths(path: object, extension: str) -> tuple[list[str], str]:
    """The paths as texts, and the ending of the files where it is not the usual one."""
    one = isinstance(path, (str, os.PathLike))
    given: Iterable[Any] = [path] if one else path  # type: ignore[assignment]
    paths = [os.path.expanduser(os.fspath(each)) for each in given]
    if not paths:
        raise Error("no file is named: give a path, a folder, a pattern or a list of these")
    name = os.path.basename(paths[0])
    if os.path.isdir(paths[0]) or "." not in name:
        return paths, extension
    stem, ending = os.path.splitext(name)
    if ending.lower() in _COMPRESSIONS:
        ending = os.path.splitext(stem)[1] + ending
    return paths, ending


_COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def _compression(extension: str) -> str:
    return _COMPRESSIONS.get(os.path.splitext(extension)[1].lower() or extension.lower(), "")
