"""`batonpass audit` on the command line: what it prints, its exit codes, and what it says when it cannot begin."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from adbc_driver_manager import ProgrammingError
from tests.audit.conftest import Audited
from tests.audit.planted import DAY
from tests.audit.sample import clean_result
from typer.testing import CliRunner

from batonpass.audit.findings import Finding, Severity
from batonpass.audit.job import Audit
from batonpass.cli import auditing
from batonpass.cli.audit import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)
QUICK = ["--no-what-if", "--no-replay", "--no-keep"]
NOWHERE = "postgresql://nobody@127.0.0.1:9/nothing"


def audit(*arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, and what it said on both ways out."""
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.needs("spark")
def test_a_broken_law_is_exit_code_1(spark: "SparkSession", planted_url: str) -> None:
    del spark
    code, out, err = audit("--day", str(DAY), "--group", "two-owners", "--database-url", planted_url, *QUICK)
    assert code == 1, err
    assert "Two members may have run a task at once (L1), in 1 group." in out
    assert "might still run it" in out
    assert "holding the day to the laws" in err


@pytest.mark.needs("spark")
def test_a_clean_day_is_exit_code_0_and_json_has_everything(spark: "SparkSession", planted_url: str) -> None:
    del spark
    code, out, err = audit("--day", str(DAY), "--group", "clean", "--database-url", planted_url, "--json", *QUICK)
    assert code == 0, err
    body = json.loads(out)
    assert body["day"] == str(DAY)
    assert (body["fatal"], body["notices"], body["findings"]) == (0, 0, [])
    assert body["groups"][0]["measures"]["tasks_max"] == 8


@pytest.mark.needs("spark")
def test_a_day_is_audited_from_its_export(audited: Audited) -> None:
    wanted = ["--from", str(audited.out), "--day", str(DAY)]
    code, out, err = audit(*wanted, "--group", "two-owners", "--no-what-if")
    assert code == 1, err
    assert "Two members may have run a task at once (L1); 2 more laws broken (L2, L9), in 1 group." in out
    code, _, err = audit(*wanted[:2], "--day", "2026-11-02")
    assert (code, "no whole export of 2026-11-02" in " ".join(err.split())) == (2, True), err
    code, _, err = audit(*wanted, "--nightly")
    assert (code, "--from reads one exported day" in err) == (2, True), err


def test_what_is_alike_is_one_row_on_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    """Forty stuck warmups of one member hid what else was found."""
    stuck = [
        Finding("g", "stuck-warmup", Severity.NOTICE, f"0_{number}", "m", f"given up at {number}", (number,))
        for number in range(40)
    ]
    other = Finding("g", "futile-probes", Severity.NOTICE, None, None, "11 of 12 probes changed nothing")
    auditing._show(replace(clean_result(), findings=(*stuck, other)), Audit(NOWHERE, DAY))
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("stuck-warmup") == said.count("(and 39 alike)") == said.count("futile-probes") == 1
    assert "--json prints all 41 findings." in said
    auditing._show(replace(clean_result(), findings=(stuck[0],)), Audit(NOWHERE, DAY))
    said = capsys.readouterr().out
    assert "alike" not in said
    assert "--json" not in said
    many = [replace(other, group=f"g{number}") for number in range(22)]
    auditing._show(replace(clean_result(), findings=tuple(many)), Audit(NOWHERE, DAY))
    assert "2 more causes; --json prints all 22 findings." in capsys.readouterr().out


def test_a_day_that_is_not_there_is_exit_code_2(planted_url: str) -> None:
    for arguments, sentence in (
        (["--day", "2026-11-02"], "no group has a record on 2026-11-02"),
        (["--day", str(DAY), "--group", "no'body"], "no group no'body has a record on"),
        (["--day", "9999-12-31"], "9999-12-31 has not begun yet"),
        (["--day", "yesterday"], "'yesterday' is no day"),
        (["--conf", "memory=3g"], "is not a Spark setting"),
        (["--out", ""], "--out is empty"),  # It would be the present folder.
    ):
        code, _, err = audit(*arguments, "--database-url", planted_url)
        assert (code, sentence in err.replace("\n", " ")) == (2, True), err


def test_a_database_that_is_not_there_is_said_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = audit("--day", str(DAY), "--database-url", NOWHERE.replace("nobody", "nobody:hush"))
    assert (code, "could not be read" in err, "hush" in err) == (3, True, False)
    monkeypatch.delenv("BATONPASS_DATABASE_URL", raising=False)
    # Else it would be the database of whoever has `make run` open meanwhile.
    monkeypatch.setattr("batonpass.cli.client_context.running_here", list)
    code, _, err = audit("--day", str(DAY))
    assert (code, "BATONPASS_DATABASE_URL" in err) == (2, True)


def test_a_password_is_not_put_into_a_command_that_spark_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's log of events has the command line of what was submitted, and any reader of the log has the password."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    code, out, err = audit("--day", str(DAY), "--database-url", NOWHERE.replace("nobody", "nobody:hush"))
    assert (code, "Set BATONPASS_DATABASE_URL instead." in err, "hush" in out + err) == (2, True, False)
    code, _, err = audit("--day", str(DAY), "--database-url", NOWHERE)
    assert (code, "could not be read" in err) == (3, True)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            RuntimeError("An exception was thrown\n  File x, line 1\nbuiltins.MemoryError: it is full\n\nhint"),
            "it is full",
        ),
        (ConnectionRefusedError(111, "Connection refused"), "Spark ended"),
        (RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), "openjdk-17-jre-headless"),
        (RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), "What it said stands above"),
        (OSError(28, "No space left on device"), "could not be written: [Errno 28]"),
        (RuntimeError("x\njava.io.IOException: No space left on device"), "a disk is full"),
        (
            OSError("[libpq] Execution error: ERROR:  canceling statement due to statement timeout"),
            "set statement_timeout",
        ),
        (
            RuntimeError("x\nOSError: [libpq] server closed the connection unexpectedly"),
            "the database could not be read",
        ),
        (
            FileNotFoundError(2, "No such file", "/opt/spark/bin/spark-submit"),
            "SPARK_HOME names a folder without Spark",
        ),
        (RuntimeError("x\nModuleNotFoundError: No module named 'batonpass'"), "name its interpreter in PYSPARK_PYTHON"),
        (
            ProgrammingError('Failed to prepare query: relation "record_log" does not exist', status_code=3),
            "check the schema with `batonpass db status`",
        ),
    ],
)
def test_whatever_breaks_has_not_the_exit_code_of_a_broken_law(
    monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    def breaks(*_: object) -> None:
        raise error

    monkeypatch.setattr("batonpass.audit.job.run", breaks)
    code, _, err = audit("--day", str(DAY), "--database-url", NOWHERE)
    assert (code, sentence in err.replace("\n", " "), "Traceback" in err) == (3, True, False), err


def test_a_user_whom_the_system_does_not_know_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java is there; Spark does not run as a user without a name."""

    def breaks(*_: object) -> None:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited")

    monkeypatch.setattr("batonpass.audit.job.run", breaks)
    monkeypatch.setattr("batonpass.child_environment.os.geteuid", lambda: 1_000_680_000)
    code, _, err = audit("--day", str(DAY), "--database-url", NOWHERE)
    assert (code, "as another user" in err.replace("\n", " "), "Java 17" in err) == (3, True, False), err


def test_what_a_url_may_not_say_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATONPASS_DATABASE_URL", "postgresql://u:hush@h/d?channel_binding=require")
    code, _, err = audit("--day", str(DAY))
    assert (code, "BATONPASS_DATABASE_URL: channel_binding" in err, "hush" in err) == (2, True, False), err


def test_where_the_report_goes_is_tried_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        code, _, err = audit("--day", str(DAY), "--database-url", NOWHERE, "--out", str(out))
        assert (code, "--out cannot be written" in err) == (3, True), err
    assert (tmp_path / "file").read_text() == "kept"


def test_a_missing_extra_is_named() -> None:
    hidden = "import sys; sys.modules['pyspark'] = None; sys.argv = ['batonpass', 'audit', '--day', '2026-11-18'"
    script = f"{hidden}, '--database-url', '{NOWHERE}']; from batonpass.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, "1 would say that a law was broken"
    assert "pip install 'batonpass[audit]'" in done.stderr


PRINT = """
import sys
from batonpass.cli.auditing import unless_gone
from batonpass.terminal import say, screen
sys.stdin.read()
unless_gone(lambda: {print}("a verdict" * 100_000))
sys.exit(7)
"""


@pytest.mark.parametrize("print_", ["say", "screen().print"])
def test_a_reader_that_goes_changes_no_exit_code(print_: str) -> None:
    """A script that pipes the verdict into `head` and asks for the exit code still learns what was found."""
    script = PRINT.format(print=print_)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as printing:
        assert printing.stdin is not None
        assert printing.stdout is not None
        assert printing.stderr is not None
        printing.stdout.close()
        printing.stdin.close()
        assert printing.stderr.read() == b""
    assert printing.returncode == 7
