"""A demo worker whose broker is away does not fill its log with that."""

import logging

import pytest

from batonpass.demo.logs import AGAIN_S, KEPT_MOST, RepeatFilter


def test_what_a_client_says_again_is_written_down_now_and_then() -> None:
    """Whatever node it is about; the second time with how often it was said."""
    now = [100.0]
    written: list[str] = []
    logger = logging.getLogger("aiokafka.of-this-test")
    logger.propagate = False
    handler = logging.Handler()
    handler.emit = lambda record: written.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(RepeatFilter(lambda: now[0]))
    logger.addHandler(handler)
    for node in range(50):
        logger.error("Unable connect to node with id %s: %s", node, "refused")
    logger.error("Unable to update metadata from %s", [1])
    assert written == ["Unable connect to node with id 0: refused", "Unable to update metadata from [1]"]
    now[0] += AGAIN_S
    logger.error("Unable connect to node with id %s: %s", 7, "refused")
    assert written[2:] == ["Unable connect to node with id 7: refused (and 49 times more in the last 30 s)"]


@pytest.mark.parametrize("name", ["batonpass.worker", "asyncio"])
def test_what_others_say_is_written_down(name: str) -> None:
    """Only Kafka's clients are known to repeat themselves."""
    passes = RepeatFilter(lambda: 0.0)
    record = logging.LogRecord(name, logging.WARNING, "", 0, "said twice", None, None)
    assert passes.filter(record)
    assert passes.filter(record)


def test_messages_without_end_are_not_all_remembered() -> None:
    passes = RepeatFilter(lambda: 0.0)
    for number in range(3 * KEPT_MOST):
        assert passes.filter(logging.LogRecord("aiokafka", logging.WARNING, "", 0, f"message {number}", None, None))
    assert len(passes._said) <= KEPT_MOST + 1
