"""Names of coordinators that say what process each is: only certain death counts as dead."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batonpass.postgres import coordinator_names
from batonpass.postgres.coordinator_names import fresh_name, is_dead

NAMED = "from batonpass.postgres.coordinator_names import fresh_name\nprint(fresh_name(), flush=True)\nimport time\ntime.sleep(60)"


@contextmanager
def process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a process that has a name."""
    with subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            yield run, run.stdout.readline().strip()
        finally:
            run.kill()


def test_no_name_comes_twice_and_no_running_process_is_dead() -> None:
    first, second = fresh_name(), fresh_name()
    assert first != second
    assert not is_dead(first)
    assert not is_dead(second)


def test_a_killed_process_is_dead_before_and_after_its_parent_has_asked_for_it() -> None:
    """The parent that has not asked for it still keeps its id."""
    with process() as (run, name):
        assert not is_dead(name)
        run.kill()
        os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(name)
        run.wait()
        assert is_dead(name)


def test_an_id_that_came_again_is_another_process() -> None:
    place, pid, _, unique = fresh_name().split(".")
    assert is_dead(f"{place}.{pid}.1.{unique}")


@pytest.mark.parametrize("name", ["0123456789abcdef", "elsewhere.1.1.abc", "a.b.c.d", "", "...", "x.1.2"])
def test_a_name_of_another_machine_or_process_space_proves_nothing(name: str) -> None:
    assert not is_dead(name)


def test_a_process_whose_beginning_cannot_be_seen_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is another user's, and hidden."""
    with process() as (_, name):
        seen = coordinator_names._stat
        monkeypatch.setattr(coordinator_names, "_stat", lambda pid: seen(pid) if pid == os.getpid() else None)
        assert not is_dead(name)


def test_a_system_that_does_not_say_names_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no /proc."""
    with process() as (run, name):
        run.kill()
        run.wait()
        monkeypatch.setattr(coordinator_names, "_PROC", tmp_path)
        assert "." not in fresh_name()
        assert not is_dead(name)
