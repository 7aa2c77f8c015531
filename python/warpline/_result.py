"""The answer of a query: lazy, read as Arrow, pandas, polars or Python values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from . import _display
from ._native import Column, DeviceResult, Error, Query
from ._progress import Progress

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

# Rows that are shown of a result.
_SHOWN = 20


class Result:
    """The rows of a query, which runs when they are wanted.

    A method that needs all rows (`to_arrow`, `to_pandas`, `fetchall`, …) keeps them, and later ones use what is kept. A stream
    (`__arrow_c_stream__`, `batches`, or the rows one by one) passes them on without keeping them. Interrupting either cancels the
    query, and the connection goes on.

    >>> import warpline
    >>> con = warpline.connect()
    >>> result = con.sql("SELECT value, value * value AS square FROM generate_series(1, 3)")
    >>> result.columns
    ['value', 'square']
    >>> result.fetchall()
    [(1, 1), (2, 4), (3, 9)]
    """

    def __init__(self, query: Query, progress: Callable[[], Progress]) -> None:
        self._query = query
        self._progress = progress
        self._rows: Iterator[tuple[Any, ...]] | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._query.names()

    @property
    def schema(self) -> pa.Schema:
        """The names and types of the columns, known before the query runs.

        >>> import warpline
        >>> warpline.connect().sql("SELECT 1 AS one, 'a' AS a").schema.field("one").type
        DataType(int64)
        """
        return self._query.schema()

    @property
    def metrics(self) -> dict[str, Any] | None:
        """What the last whole run did: times in milliseconds, kernels, bytes, and why parts ran on the CPU (`fallbacks`); None
        before the first one."""
        return self._query.metrics()

    # All rows.

    def to_arrow(self) -> pa.Table:
        """All rows as a `pyarrow.Table`, without a copy.

        >>> import warpline
        >>> warpline.connect().sql("SELECT 42 AS answer").to_arrow().to_pydict()
        {'answer': [42]}
        """
        with self._progress() as progress:
            return self._query.to_arrow(progress)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; `options` are those of `pyarrow.Table.to_pandas`, such as `types_mapper`.

        >>> import warpline
        >>> float(warpline.connect().sql("SELECT 1.5 AS x").to_pandas()["x"].sum())
        1.5
        """
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise Error("to_pandas() needs pandas, which is not installed: pip install pandas") from error
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame.

        >>> import warpline
        >>> warpline.connect().sql("SELECT 7 AS n").to_polars()["n"].to_list()
        [7]
        """
        try:
            import polars
        except ImportError as error:
            raise Error("to_polars() needs polars, which is not installed: pip install polars") from error
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_numpy(self) -> dict[str, Any]:
        """All columns as numpy arrays, by name; NULLs are NaN or None, as in pyarrow.

        >>> import warpline
        >>> warpline.connect().sql("SELECT value FROM generate_series(1, 3)").to_numpy()["value"].tolist()
        [1, 2, 3]
        """
        table = self.to_arrow()
        return {name: table.column(at).to_numpy() for at, name in enumerate(table.column_names)}

    def to_pydict(self) -> dict[str, list[Any]]:
        """All columns as lists, by name."""
        columns: dict[str, list[Any]] = self.to_arrow().to_pydict()
        return columns

    def execute(self) -> Result:
        """Runs the query and keeps its rows, which later calls use; returns this result."""
        with self._progress() as progress:
            self._query.run(progress)
        return self

    def __len__(self) -> int:
        """The number of rows; runs the query."""
        known = self._query.known_rows()
        if known is None:
            self.execute()
            known = self._query.known_rows()
        return known or 0

    def __bool__(self) -> bool:
        # Without this, `if result:` would run the query.
        return True

    def __getitem__(self, column: str | int) -> Column:
        """A column by name or position: an object with `__arrow_c_array__`, and `__dlpack__` where it has numbers without NULL.

        >>> import numpy
        >>> import warpline
        >>> column = warpline.connect().sql("SELECT value FROM generate_series(1, 3)")["value"]
        >>> numpy.from_dlpack(column).sum().item()
        6
        """
        names = self.columns
        if isinstance(column, str):
            if column not in names:
                raise KeyError(f"there is no column {column!r}: the columns are {', '.join(names)}")
            number = names.index(column)
        else:
            number = range(len(names))[column]
        with self._progress() as progress:
            return self._query.column(number, progress)

    def on_device(self) -> DeviceResult:
        """Runs the query and leaves its rows in the memory of the device, for packages that go on there: the answer has
        `__arrow_c_device_array__`, and its columns `__dlpack__` and `__cuda_array_interface__`.

        The device computes all of it where it can; rows that the CPU computes are copied there, which `by_host` tells. The memory
        counts as the connection's until the last array of it is gone. Each call runs the query.

        >>> import numpy
        >>> import warpline
        >>> rows = warpline.connect(device="emulator").sql("SELECT value FROM generate_series(1, 3)").on_device()
        >>> numpy.from_dlpack(rows["value"]).sum().item()
        6
        """
        with self._progress() as progress:
            return self._query.on_device(progress)

    # Rows as Python values.

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None at the end. Rows come as they are computed and are not kept."""
        if self._rows is None:
            self._rows = iter(self)
        return next(self._rows, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next `size` rows, fewer at the end."""
        rows: list[tuple[Any, ...]] = []
        while len(rows) < size:
            row = self.fetchone()
            if row is None:
                break
            rows.append(row)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows that `fetchone` and `fetchmany` have left, or all of them.

        >>> import warpline
        >>> warpline.connect().sql("SELECT 1, 'a', NULL").fetchall()
        [(1, 'a', None)]
        """
        if self._rows is not None:
            return list(self._rows)
        rows: list[tuple[Any, ...]] = []
        for batch in self.to_arrow().to_batches():
            rows.extend(_rows_of(batch))
        self._rows = iter(())
        return rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rows one by one, as they are computed."""
        kept = self._query.known_rows() is not None
        for batch in self.to_arrow().to_batches() if kept else self._query.batches():
            yield from _rows_of(batch)

    # Streams.

    def batches(self) -> pa.RecordBatchReader:
        """The rows batch by batch, as they are computed: a `pyarrow.RecordBatchReader`, whose errors are pyarrow's.

        >>> import warpline
        >>> reader = warpline.connect().sql("SELECT value FROM generate_series(1, 3)").batches()
        >>> sum(batch.num_rows for batch in reader)
        3
        """
        return pa.RecordBatchReader.from_stream(self)

    def __arrow_c_schema__(self) -> object:
        return self._query.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows batch by batch for any library that reads Arrow's C stream. The query runs while it is read."""
        return self._query.__arrow_c_stream__(requested_schema)

    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **_more: object
    ) -> tuple[object, object]:
        """All rows as one struct array of Arrow's C device interface, in the memory of the host."""
        with self._progress() as progress:
            return self._query.device_array(progress)

    # Files.

    def write_parquet(self, path: str | os.PathLike[str]) -> int:
        """Writes all rows to a parquet file, as they are computed, and returns how many they are; `COPY` has more options.

        >>> import os, tempfile
        >>> import warpline
        >>> con = warpline.connect()
        >>> path = os.path.join(tempfile.mkdtemp(), "n.parquet")
        >>> con.sql("SELECT value FROM generate_series(1, 3)").write_parquet(path)
        3
        >>> con.read_parquet(path).fetchall()
        [(1,), (2,), (3,)]
        """
        return self._write(path, "parquet")

    def write_csv(self, path: str | os.PathLike[str]) -> int:
        """Writes all rows to a CSV file, and returns how many they are."""
        return self._write(path, "csv")

    def write_json(self, path: str | os.PathLike[str]) -> int:
        """Writes all rows to a file with a JSON object a line, and returns how many they are."""
        return self._write(path, "json")

    def _write(self, path: str | os.PathLike[str], format: str) -> int:
        with self._progress() as progress:
            return self._query.write(os.path.expanduser(os.fspath(path)), format, progress)

    # What the query does.

    def explain(self, analyze: bool = False, *, verbose: bool = False) -> str:
        """The plan: what runs on the device, by which algorithm and why, and what stays on the CPU. With `analyze`, the query runs,
        and the plan tells rows, bytes and times of each part.

        >>> import warpline
        >>> "physical_plan" in warpline.connect().sql("SELECT 1").explain()
        True
        """
        with self._progress() as progress:
            parts = self._query.explain(analyze, verbose, progress)
        return "\n".join(f"{kind}:\n{text}" for kind, text in parts)

    def profile(self, runs: int = 3) -> Profile:
        """Runs the query cold and hot, and records what host and device did when.

        >>> import warpline
        >>> profile = warpline.connect().sql("SELECT sum(value) FROM generate_series(1, 100)").profile(runs=2)
        >>> [run["name"] for run in profile.runs]
        ['cold run', 'hot run 1']
        """
        if runs < 1:
            raise Error(f"a profile has at least one run, not {runs}")
        with self._progress() as progress:
            return Profile(*self._query.profile(runs, progress))

    # For people.

    def show(self, rows: int = _SHOWN) -> None:
        """Prints the first rows."""
        print(self._text(rows))

    def __repr__(self) -> str:
        return self._text(_SHOWN)

    def _repr_html_(self) -> str:
        cells, footer = self._preview(_SHOWN)
        return _display.as_html(self.columns, self._query.types(), cells, footer)

    def _text(self, rows: int) -> str:
        cells, footer = self._preview(rows)
        return _display.as_text(self.columns, self._query.types(), cells, footer)

    def _preview(self, rows: int) -> tuple[list[list[str | None]], str]:
        with self._progress() as progress:
            cells, complete = self._query.preview(rows, progress)
        known = self._query.known_rows()
        if not self.columns:
            return cells, "done"
        if complete or known == len(cells):
            return cells, f"{len(cells)} {'row' if len(cells) == 1 else 'rows'}"
        if known is None:
            return cells, f"the first {len(cells)} rows"
        return cells, f"{known} rows, of which the first {len(cells)} are shown"


class Profile:
    """What host and device did when, in some runs of a query."""

    def __init__(self, json: str, runs: list[dict[str, Any]]) -> None:
        self._json = json
        #: A dict for each run: name, total_ms, plan_ms, kernel_ms, kernels, copy_ms, compiled.
        self.runs = runs

    def to_json(self) -> str:
        """The timeline in the Trace Event Format, for https://ui.perfetto.dev and chrome://tracing."""
        return self._json

    def save(self, path: str) -> None:
        """Writes the timeline to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._json)

    def __repr__(self) -> str:
        lines = [
            f"{run['name']}: {run['total_ms']:.2f} ms, plan {run['plan_ms']:.2f} ms, {run['kernels']} kernels "
            f"{run['kernel_ms']:.2f} ms"
            for run in self.runs
        ]
        return "\n".join(lines)


def _rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples. Times of nanoseconds are cut to microseconds, which is what Python's have."""
    if batch.num_columns == 0:
        return iter([()] * batch.num_rows)
    return zip(*(_python(column).to_pylist() for column in batch.columns))


def _python(column: pa.Array[Any]) -> pa.Array[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return column.cast(pa.duration("us"), safe=False)
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return column.cast(pa.time64("us"), safe=False)
    return column
