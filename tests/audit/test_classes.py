"""Spark's classes are kept by the first session that ends, and the next one starts with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(300)]

SESSION = """
import sys
from batonpass.audit.session import opened
with opened(meanwhile=lambda: 1, master="local[1]", tell=lambda line: sys.stderr.write(f"told: {line}\\n")) as session:
    jvm = session.sparkContext._jvm
    given = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    maps = f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps"
    mapped = sys.platform == "linux" and ".jsa" in open(maps).read().replace("classes.jsa", "")
    print(session.range(3).count(), any("ArchiveClassesAtExit" in one for one in given), mapped)
"""


def session(cache: Path) -> subprocess.CompletedProcess[str]:
    """Open a session of its own process, and end it."""
    env = os.environ | {"XDG_CACHE_HOME": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", SESSION], env=env, capture_output=True, text=True, check=True, timeout=250
    )


def test_the_next_session_starts_with_what_the_first_one_kept(tmp_path: Path) -> None:
    """The first one leaves an archive and says so, and nothing of it on standard output; the second one only reads."""
    folder = tmp_path / "batonpass"
    folder.mkdir()
    old = folder / "spark-of-another-version.jsa"
    old.write_text("")
    first = session(tmp_path)
    assert first.stdout == "3 True False\n"
    assert "told: keeping Spark's classes" in first.stderr
    (kept,) = folder.glob("*.jsa")
    assert not old.exists()
    assert not list(folder.glob("*.part"))
    made = kept.stat().st_mtime_ns
    second = session(tmp_path)
    assert second.stdout == f"3 False {sys.platform == 'linux'}\n"
    assert "told:" not in second.stderr
    assert kept.stat().st_mtime_ns == made
    # One that was cut off, by a full disk for instance, is not believed.
    kept.chmod(0o600)
    os.truncate(kept, kept.stat().st_size // 2)
    assert session(tmp_path).stdout == "3 True False\n"
    (anew,) = folder.glob("*.jsa")
    assert anew.stat().st_size == int(anew.stem.rpartition("-")[2])


def test_what_is_no_archive_is_passed_over(tmp_path: Path) -> None:
    """A session starts all the same, and says nothing on standard output."""
    from batonpass.audit.classes import Classes  # noqa: PLC0415 - the other tests need nothing of it

    made = Classes(tmp_path / "batonpass")
    assert made.path is None
    name, _, place = made.options().split()[0].partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    part = Path(place)
    made.let_go()
    damaged = part.with_name(f"{part.stem}-10.jsa")
    damaged.write_bytes(b"no archive")
    assert Classes(tmp_path / "batonpass").path == damaged
    assert session(tmp_path).stdout == "3 False False\n"


def test_one_session_at_a_time_makes_it(tmp_path: Path) -> None:
    """Another one that starts meanwhile does without, and so does one that may not write there."""
    from batonpass.audit.classes import Classes  # noqa: PLC0415 - see above

    first, other = Classes(tmp_path / "made"), Classes(tmp_path / "made")
    assert "ArchiveClassesAtExit" in first.options()
    assert first.is_made
    assert other.options() == ""
    assert not other.is_made
    (tmp_path / "file").write_text("")
    assert Classes(tmp_path / "file" / "below").options() == ""
    first.let_go()
    assert "ArchiveClassesAtExit" in other.options()
    other.let_go()


def test_a_user_without_a_home_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any number; and one whose folders have spaces in their names."""
    from batonpass.audit.classes import Classes  # noqa: PLC0415 - see above

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert (Classes().path, Classes().options()) == (None, "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/some body/.cache")
    assert (Classes().path, Classes().options()) == (None, "")


def test_options_of_ones_own_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says what Java is to be started with has no archive made."""
    from batonpass.audit import session as sessions  # noqa: PLC0415 - see above

    assert sessions.JAVA_OPTIONS == "spark.driver.extraJavaOptions"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own = SESSION.replace(
        "meanwhile=lambda: 1,", 'meanwhile=lambda: 1, settings={"spark.driver.extraJavaOptions": "-Xss2m"},'
    )
    done = subprocess.run([sys.executable, "-c", own], capture_output=True, text=True, check=True, timeout=250)
    assert done.stdout == "3 False False\n"
    assert not list(tmp_path.rglob("*.jsa"))
