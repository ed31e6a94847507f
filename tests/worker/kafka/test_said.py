"""A client whose broker is away says so many times a second; the log says it now and then."""

import logging
from weakref import WeakSet

import pytest

from batonpass.worker.kafka import said


class _User:
    """Something that has clients of aiokafka."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what one of aiokafka's loggers lets through, while nobody else of this process uses it."""
    monkeypatch.setattr(said, "_users", WeakSet())
    lines: list[str] = []
    logger = logging.getLogger("aiokafka.of-this-test")
    logger.propagate = False
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    return lines


def test_what_a_client_says_again_is_written_once(written: list[str]) -> None:
    user, logger = _User(), logging.getLogger("aiokafka.of-this-test")
    said.write_once(user)
    said.write_once(user)
    for _ in range(50):
        logger.error("Unable connect to node with id %s: %s", 1, "refused")
    logger.error("Unable to update metadata from %s", [1])
    assert written == ["Unable connect to node with id 1: refused", "Unable to update metadata from [1]"]
    del user
    logger.error("Unable connect to node with id %s: %s", 1, "refused")
    assert len(written) == 3
