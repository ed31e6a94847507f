"""What all tests share: the parts outside Python that a run may leave out, by name and never in silence."""

import os
import signal

import pytest

# A run that was started in the background by a shell ignores Ctrl-C, and so would every program that a test starts;
# some of these are to end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Parts that some machines lack. A test that needs one says so by `@pytest.mark.needs("kafka")` and fails where it
# is missing; BATONPASS_TEST_WITHOUT=kafka,spark leaves out the tests that need these, and the run says so at its end.
PARTS = frozenset({"chromium", "kafka", "maven", "promtool", "spark"})


def left_out() -> frozenset[str]:
    """Return the parts that this run leaves out; a name that means nothing is an error."""
    parts = frozenset(part.strip() for part in os.environ.get("BATONPASS_TEST_WITHOUT", "").split(",") if part.strip())
    if unknown := parts - PARTS:
        message = f"BATONPASS_TEST_WITHOUT names {sorted(unknown)}; it may name {sorted(PARTS)}"
        raise pytest.UsageError(message)
    return parts


def needed(item: pytest.Item) -> frozenset[str]:
    """Return the parts that a test needs; a name that means nothing is an error."""
    parts = frozenset(part for marker in item.iter_markers("needs") for part in marker.args)
    if unknown := parts - PARTS:
        message = f"{item.nodeid} needs {sorted(unknown)}; known parts are {sorted(PARTS)}"
        raise pytest.UsageError(message)
    return parts


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that need a part which is left out; begin with the long ones, so that none is left alone."""
    without = left_out()
    dropped = [item for item in items if needed(item) & without]
    if dropped:
        items[:] = [item for item in items if not needed(item) & without]
        config.hook.pytest_deselected(items=dropped)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end what was left out."""
    if without := left_out():
        terminalreporter.write_line(f"left out by BATONPASS_TEST_WITHOUT: {', '.join(sorted(without))}", yellow=True)
