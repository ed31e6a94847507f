"""What all tests share: servers, the parts outside Python that a run may leave out, and the order of a parallel run."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
from hypothesis import settings

# A run that was started in the background by a shell ignores Ctrl-C, and so would every program that a test starts;
# some of these are to end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Whoever speaks HTTP reads all the world's authorities first, which takes longer than most tests, and no test speaks to
# the world: one authority that has signed nothing is read instead, here and in the programs that tests start.
SIGNS_NOTHING = str(Path(__file__).with_name("fixtures") / "signs_nothing.pem")
os.environ["SSL_CERT_FILE"] = SIGNS_NOTHING
certifi.where = lambda: SIGNS_NOTHING

# How long an example takes is the machine's: one that does other things as well fails no test. All else stays as it is,
# on machines of CI too.
settings.register_profile("without-deadline", settings(), deadline=None)
settings.load_profile("without-deadline")

# Parts that some machines lack. A test that needs one says so by `@pytest.mark.needs("kafka")` and fails where it
# is missing; BATONPASS_TEST_WITHOUT=kafka,spark leaves out the tests that need these, and the run says so at its end.
PARTS = frozenset({"chromium", "kafka", "maven", "pgbouncer", "promtool", "spark"})

# A parallel run with `--dist loadfile` gives each file to one of its processes. What stands in one lane here goes to
# the same process: files that wait for minutes, so that they do not disturb one another, and files that share a
# fixture that takes seconds to make. Lanes come first, so that the end of the run does not wait for one of them.
LANES = {
    "long": (
        "tests/demo/test_demo.py",
        "tests/proof/test_kills.py",
        "tests/clients/test_kafka_streams.py",
        "tests/proof/test_two_coordinators.py",
    ),
    "spark": (
        "tests/audit/test_advice.py",
        "tests/audit/test_audit.py",
        "tests/audit/test_audit_command.py",
        "tests/audit/test_cluster.py",
        "tests/audit/test_entries.py",
        "tests/audit/test_plan.py",
        "tests/audit/test_plants.py",
        "tests/audit/test_reloading.py",
        "tests/audit/test_session.py",
        "tests/audit/test_spread.py",
        "tests/audit/test_whatif.py",
    ),
    "up": (
        "tests/e2e/test_api_page.py",
        "tests/e2e/test_demo.py",
        "tests/e2e/test_handover_by_curl.py",
        "tests/e2e/test_suspicion.py",
        "tests/e2e/test_up.py",
        "tests/e2e/test_workers.py",
    ),
    "fleet": ("tests/deploy/test_prometheus.py", "tests/deploy/test_runbooks.py"),
}
LANE_OF = {file: lane for lane, files in LANES.items() for file in files}
# Folders and files of tests that start real processes, or simulate for long; they come before those that take no time.
SLOW = frozenset({"audit", "clients", "dashboard", "days", "demo", "e2e", "kafka", "postgres", "proof", "simulate"}) | {
    *("benchmarks", "serving", "worker", "test_first_hour.py", "test_imports.py", "test_wheel.py"),
}


# Fixtures of servers that a whole run shares, with the folders whose tests use them. In a conftest they would be made
# once for each folder; in `pytest_plugins` every run would import them, and the core's imports nothing of the service.
SERVERS = {
    "tests.kafka.cluster": frozenset({"clients", "kafka", "worker"}),
    "tests.postgres.server": frozenset(
        {
            "audit",
            "benchmarks",
            "clients",
            "contracts",
            "dashboard",
            "days",
            "demo",
            "deploy",
            "e2e",
            "kafka",
            "postgres",
            "proof",
            "soak",
        }
    ),
}


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> None:
    """Register the fixtures of servers before the first folder is collected whose tests use them."""
    if path.parent == Path(__file__).parent:
        for fixtures, folders in SERVERS.items():
            if path.name in folders:
                parent.config.pluginmanager.import_plugin(fixtures)


@pytest.fixture(autouse=True)
def _logging_left_as_found() -> Iterator[None]:
    """A test that sets up the program's logs leaves the next one its own."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


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


def lane_of(nodeid: str) -> str:
    """Return the lane of a test: one of those above, or its own file."""
    file = nodeid.partition("::")[0]
    return LANE_OF.get(file, file)


def turn_of(item: pytest.Item) -> int:
    """Return when it is a test's turn: the lanes in their order, then what may take long, then all else."""
    lane = lane_of(item.nodeid)
    if lane in LANES:
        return list(LANES).index(lane)
    return len(LANES) + (not {item.path.parent.name, item.path.name} & SLOW)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that need a part which is left out; a parallel run begins with what takes long."""
    without = left_out()
    dropped = [item for item in items if needed(item) & without]
    if dropped:
        items[:] = [item for item in items if not needed(item) & without]
        config.hook.pytest_deselected(items=dropped)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=turn_of)


def pytest_sessionstart() -> None:
    """Collect no garbage while tests are collected: next to none of what is made meanwhile is any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what thousands of collected tests are made of from being looked through at every collection of garbage."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let everything go at the end; some libraries complain of what is left."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole lanes, in the order of the tests, where tests are handed out by files."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only a parallel run has it

    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = lane_of
    return scheduler


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end what was left out."""
    if without := left_out():
        terminalreporter.write_line(f"left out by BATONPASS_TEST_WITHOUT: {', '.join(sorted(without))}", yellow=True)


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
