"""What measurements are spared of."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _light() -> Iterator[None]:
    """Measurements collect garbage before they begin: what other tests have left in this process is no part of that."""
    gc.freeze()
    yield
    gc.unfreeze()
