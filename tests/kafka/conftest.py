"""What aiokafka leaves behind is let go of after each test."""

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    """Let go of connections that aiokafka forgets when it is closed while it connects, before another test is blamed.

    Its client keeps a connection only once it is ready; one that was cancelled before that is closed by nobody.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
