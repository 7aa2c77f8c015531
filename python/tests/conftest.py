"""Connections to test with: on the CPU, and on the emulator, where every kernel runs without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import warpline


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "con" in metafunc.fixturenames:
        metafunc.parametrize("con", ["cpu", "emulator"], indirect=True)


@pytest.fixture
def con(request: pytest.FixtureRequest) -> Iterator[warpline.Connection]:
    """A connection on each device. Small tables go to the device, too."""
    with warpline.connect(device=request.param, min_rows=0, progress=False) as connection:
        yield connection


@pytest.fixture
def cpu() -> Iterator[warpline.Connection]:
    """A connection on the CPU, for what no device is asked for."""
    with warpline.connect(device="cpu", progress=False) as connection:
        yield connection


@pytest.fixture
def emulator() -> Iterator[warpline.Connection]:
    """A connection on the emulator."""
    with warpline.connect(device="emulator", min_rows=0, progress=False) as connection:
        yield connection
