"""Tests that are marked ``no_cover`` are not traced, in a worker of xdist either."""

import sys
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Take the tracer away that pytest-cov leaves in a worker: it starts two there, and ``no_cover`` pauses one."""
    if item.get_closest_marker("no_cover") is None:
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
