"""Names of coordinators that say what process each is: only certain death counts as dead."""

from __future__ import annotations

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


def test_no_name_comes_twice_and_its_own_process_lives() -> None:
    """Two names of one process differ, and neither is dead while it asks."""
    first, second = fresh_name(), fresh_name()
    assert first != second
    assert not is_dead(first)
    assert not is_dead(second)


def test_a_killed_process_is_dead_before_and_after_its_parent_has_asked_for_it() -> None:
    """Nobody is dead while it runs; it is when it was killed, whether its id is still kept for its parent or not."""
    with process() as (run, name):
        assert not is_dead(name)
        run.kill()
        os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(name)
        run.wait()
        assert is_dead(name)


def test_an_id_that_came_again_is_another_process() -> None:
    """The id of a process that lives, with the start of another one: the one that was named is dead."""
    place, pid, _, unique = fresh_name().split(".")
    assert is_dead(f"{place}.{pid}.1.{unique}")


@pytest.mark.parametrize("name", ["0123456789abcdef", "elsewhere.1.1.abc", "a.b.c.d", "", "...", "x.1.2"])
def test_what_is_said_of_another_place_proves_nothing(name: str) -> None:
    """Another machine's processes, other spaces of process ids, and names that say nothing: nobody can tell."""
    assert not is_dead(name)


def test_a_process_whose_beginning_cannot_be_seen_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is there, but is somebody else's and hidden, it counts as alive."""
    with process() as (_, name):
        seen = coordinator_names._stat
        monkeypatch.setattr(coordinator_names, "_stat", lambda pid: seen(pid) if pid == os.getpid() else None)
        assert not is_dead(name)


def test_a_system_that_does_not_say_names_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without /proc a name is just new, and no name of anybody proves anything."""
    with process() as (run, name):
        run.kill()
        run.wait()
        monkeypatch.setattr(coordinator_names, "_PROC", tmp_path)
        assert "." not in fresh_name()
        assert not is_dead(name)
