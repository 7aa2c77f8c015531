"""The interface of PEP 249 (DB-API 2.0), for programs that speak it.

>>> import warpline.dbapi
>>> with warpline.dbapi.connect(device="cpu") as con:
...     cur = con.cursor()
...     _ = cur.execute("SELECT value FROM generate_series(1, 5) WHERE value > ?", (3,))
...     [column[0] for column in cur.description], cur.fetchall()
(['value'], [(4,), (5,)])

There are no transactions: each statement stands alone, `commit` does nothing, and there is no `rollback`.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from ._connection import Connection as _Session
from ._connection import connect as _connect
from ._native import Error as _Error
from ._result import Result

apilevel = "2.0"
#: Threads may share the module and connections.
threadsafety = 2
paramstyle = "qmark"


_T = TypeVar("_T")


class Warning(Exception):  # noqa: A001
    """Of PEP 249; not raised."""


#: What all exceptions are.
Error = _Error


class InterfaceError(_Error):
    """A wrong use of this interface, such as of a closed cursor."""


class DatabaseError(_Error):
    """A statement failed."""


class DataError(DatabaseError):
    """Of PEP 249; not raised."""


class OperationalError(DatabaseError):
    """Of PEP 249; not raised."""


class IntegrityError(DatabaseError):
    """Of PEP 249; not raised."""


class InternalError(DatabaseError):
    """Of PEP 249; not raised."""


class ProgrammingError(DatabaseError):
    """A fetch where there are no rows."""


class NotSupportedError(DatabaseError):
    """Transactions."""


Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802
    """A date of seconds since 1970."""
    return datetime.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802
    """A time of seconds since 1970."""
    return datetime.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802
    """A date and time of seconds since 1970."""
    return datetime.datetime(*time.localtime(ticks)[:6])


class _Kind:
    """A kind of types, to compare with what `Cursor.description` tells."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Kind):
            return self._name == other._name
        return isinstance(other, pa.DataType) and _kind(other) == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return self._name


STRING = _Kind("STRING")
BINARY = _Kind("BINARY")
NUMBER = _Kind("NUMBER")
DATETIME = _Kind("DATETIME")
ROWID = _Kind("ROWID")


def _kind(data_type: Any) -> str:
    types = pa.types
    if types.is_integer(data_type) or types.is_floating(data_type) or types.is_decimal(data_type):
        return "NUMBER"
    if types.is_temporal(data_type):
        return "DATETIME"
    if "binary" in str(data_type):
        return "BINARY"
    return "STRING"


def connect(*args: Any, **settings: Any) -> Connection:
    """As `warpline.connect`."""
    return Connection(_connect(*args, **settings))


class Connection:
    """A connection of PEP 249; `session` is the connection behind it."""

    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(self, session: _Session) -> None:
        self.session = session

    def cursor(self) -> Cursor:
        """A cursor."""
        if self.session.closed:
            raise InterfaceError("the connection is closed")
        return Cursor(self)

    def commit(self) -> None:
        """Nothing: each statement stands alone."""
        if self.session.closed:
            raise InterfaceError("the connection is closed")

    def rollback(self) -> None:
        """Is not supported."""
        raise NotSupportedError("there are no transactions: each statement stands alone, and what it did stays")

    def close(self) -> None:
        """Ends the session."""
        self.session.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cursor:
    """A cursor of PEP 249. Rows come as they are computed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._result: Result | None = None
        self._closed = False

    @property
    def description(self) -> list[tuple[str, Any, None, None, None, None, bool]] | None:
        """Name, type (of pyarrow) and whether it may be NULL of each column; None where there are no columns."""
        if self._result is None or not self._result.columns:
            return None
        return [(each.name, each.type, None, None, None, None, each.nullable) for each in self._result.schema]

    @property
    def rowcount(self) -> int:
        """-1: rows come as they are computed."""
        return -1

    def execute(self, operation: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> Cursor:
        """Runs a statement."""
        self._open()
        self._result = None
        try:
            self._result = self.connection.session.sql(operation, parameters or None)
        except _Error as error:
            raise DatabaseError(str(error)) from error
        return self

    def executemany(self, operation: str, parameters: Sequence[Sequence[object] | Mapping[str, object]]) -> Cursor:
        """Runs a statement for each of the values."""
        for values in parameters:
            self.execute(operation, values)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        return self._fetched(self._rows().fetchone)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows: `arraysize` of them if no size is given."""
        rows = self._rows()
        return self._fetched(lambda: rows.fetchmany(self.arraysize if size is None else size))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return self._fetched(self._rows().fetchall)

    def fetch_arrow_table(self) -> pa.Table:
        """All rows as a `pyarrow.Table`."""
        return self._fetched(self._rows().to_arrow)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Nothing: values tell their types."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing: values come whole."""

    def close(self) -> None:
        """Ends the cursor, and what it runs."""
        self._result = None
        self._closed = True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")

    def _rows(self) -> Result:
        self._open()
        if self._result is None:
            raise ProgrammingError("there are no rows: execute a query first")
        return self._result

    @staticmethod
    def _fetched(fetch: Callable[[], _T]) -> _T:
        try:
            return fetch()
        except _Error as error:
            raise DatabaseError(str(error)) from error
