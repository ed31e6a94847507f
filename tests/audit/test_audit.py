"""An audit of one day finds what was planted, says nothing of what is in order, and writes down what it found."""

import asyncio
from collections import defaultdict
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import text
from tests.audit.conftest import Audited
from tests.audit.planted import HOUR_MS, MIDNIGHT_MS, QUIET_MS, VARIANTS

from batonpass.audit.findings import Finding, Severity
from batonpass.codec.code import code_version
from batonpass.postgres.connect import connect

# The first test waits for Spark, a database and an audit.
pytestmark = [pytest.mark.needs("spark"), pytest.mark.timeout(900)]

FATAL: dict[str, set[str]] = {
    "two-owners": {"L1"},
    "token-falls": {"L1"},
    "cold-promotion": {"L7"},
    "cold-copy": {"L7"},
    "to-and-fro": {"L8"},
    "many-warmups": {"L8"},
    "hole": {"L2"},
    "tail-lost": {"L2"},
    "deposed": {"L4"},
    "skipped-epoch": {"L2"},
    "unreadable": {"L2"},
    "generation-untold": {"L2"},
    "otherwise": {"L10"},
}
"""What breaks which law."""

NOTICED: dict[str, set[str]] = {
    "stuck-warmup": {"stuck-warmup"},
    "flapping": {"flapping-member"},
    "unowned": {"stuck-task", "downtime-objective"},
    "quiet": {"stuck-task", "downtime-objective"},
    "older": {"L10"},
}
"""What is lawful and worth a look."""

# Records that no core decided leave a group that contradicts itself when the day ends: a finding too. So is a handover
# that no target asked for, where the day itself had made the last one that the target did.
ALSO = {"L2", "L8", "L9", "replay-incomplete"}


def findings_of(audited: Audited, group: str, law: str | None = None) -> list[Finding]:
    """Return what was found of a group."""
    return [one for one in audited.result.findings if one.group == group and law in (None, one.law)]


def test_whatever_was_planted_is_found_where_it_was_planted(audited: Audited) -> None:
    fatal: defaultdict[str, set[str]] = defaultdict(set)
    notices: defaultdict[str, set[str]] = defaultdict(set)
    for one in audited.result.findings:
        (fatal if one.severity is Severity.FATAL else notices)[one.group].add(one.law)
    for group, laws in FATAL.items():
        assert laws <= fatal[group] <= laws | ALSO, f"{group}: {findings_of(audited, group)}"
        assert notices[group] <= ALSO, f"{group}: {findings_of(audited, group)}"
    for group, laws in NOTICED.items():
        assert notices[group] - ALSO == laws, f"{group}: {findings_of(audited, group)}"
        assert fatal[group] <= {"L9"}, f"{group}: {findings_of(audited, group)}"
    assert {*fatal, *notices} == {*FATAL, *NOTICED}
    assert {*VARIANTS, "calm", "otherwise", "older", "streams"} == {*FATAL, *NOTICED, "calm", "clean", "streams"}


def test_of_a_group_that_was_not_read_whole_no_figure_is_known_but_its_records(audited: Audited) -> None:
    known = {
        one.group: {name for name, value in one.measures.items() if value is not None} for one in audited.result.groups
    }
    assert "hole" in audited.result.unread
    assert {group for group, names in known.items() if names == {"records"}} == audited.result.unread
    assert all(one.downtime_by_cause == {} for one in audited.result.groups if one.group in audited.result.unread)
    told = {one.group for one in audited.result.findings if one.law == "downtime-objective"}
    assert not told & audited.result.unread


def test_the_result_is_handed_out_once(audited: Audited) -> None:
    """The verdict can be printed before Spark has ended; it is the one that is returned."""
    assert [one is audited.result for one in audited.results] == [True]


def test_a_clean_day_has_no_findings(audited: Audited) -> None:
    """The days have a crash, restarts, a drain and a new coordinator; one is of a Kafka Streams application."""
    assert findings_of(audited, "calm") == []
    assert findings_of(audited, "streams") == []
    assert findings_of(audited, "clean") == []
    assert audited.result.findings_left_out == 0


@pytest.mark.parametrize(
    ("group", "law", "task", "member", "words"),
    [
        ("two-owners", "L1", "0_0", None, "might still run it"),
        ("token-falls", "L1", "0_0", None, "is not above"),
        ("cold-promotion", "L7", "0_0", None, "had no copy of it"),
        ("cold-copy", "L7", "0_1", None, "a standby that was not caught up"),
        ("to-and-fro", "L8", "0_2", None, "2 handovers from running owners"),
        ("many-warmups", "L8", None, None, "6 warmups at"),
        ("many-warmups", "L8", None, "greedy", "max_warmups_per_member allows 2"),
        ("stuck-warmup", "stuck-warmup", "0_3", None, "in 20 h"),
        ("flapping", "flapping-member", None, "shaky", "6 times within an hour"),
        ("unowned", "stuck-task", "0_4", None, "granted to nobody for 19 h 59 min"),
        ("hole", "L2", None, None, "is missing"),
        ("tail-lost", "L2", None, None, "the end of the log is missing: the last 2 records are lost"),
        ("deposed", "L4", None, None, "a coordinator of epoch 0 appended after one of epoch"),
        ("unreadable", "L2", None, None, "from-the-future"),
        ("generation-untold", "L2", None, None, "not among the generations"),
        ("otherwise", "L10", None, None, "the same code"),
        ("older", "L10", None, None, "0.0.1+x"),
    ],
)
def test_a_finding_says_what_and_proves_it(
    audited: Audited, *, group: str, law: str, task: str | None, member: str | None, words: str
) -> None:
    found = [one for one in findings_of(audited, group, law) if words in one.detail]
    assert found, findings_of(audited, group)
    for one in found:
        assert task in (None, one.task)
        assert member in (None, one.member)
        assert all(0 < sequence <= 250 for sequence in one.sequences)
        assert one.sequences or law == "stuck-task"
        assert all(MIDNIGHT_MS <= at < MIDNIGHT_MS + 24 * HOUR_MS for at in one.at)
    if group not in {"hole", "tail-lost", "generation-untold", "otherwise", "older", "two-owners", "cold-promotion"}:
        assert max(found[0].at) >= MIDNIGHT_MS + QUIET_MS


def test_logged_decisions_are_decided_again(audited: Audited) -> None:
    assert audited.result.decisions_replayed > 80
    assert audited.result.decisions_differing == 2
    assert audited.result.code_version == code_version()


def test_the_day_is_measured(audited: Audited) -> None:
    days = {day.group: day for day in audited.result.groups}
    assert set(days) == {*VARIANTS, "calm", "otherwise", "older", "streams"}
    calm, causes = days["calm"].measures, days["calm"].downtime_by_cause
    assert calm["tasks_max"] == 8
    assert calm["members_max"] == 4
    assert calm["excess_moves"] == 0
    assert calm["wasted_warmups"] == 0
    assert calm["downtime_ms"] == sum(of["total_ms"] for of in causes.values())
    # A crash without a word is noticed when its session is over: 45 s, and a moment until the standby runs.
    assert causes["failover"]["max_ms"] > 45_000
    assert causes["warm-handover"]["p50_ms"] < 1_000
    assert 0.999 < float(calm["availability"] or 0) < 1
    assert days["flapping"].measures["flapping_members"] == 1
    assert float(days["unowned"].measures["longest_unowned_ms"] or 0) >= 19 * HOUR_MS
    assert "stuck" in days["unowned"].downtime_by_cause
    # The same day under another name comes to the same.
    assert days["clean"].measures == calm


def test_pictures_show_the_worst_hour(audited: Audited) -> None:
    """It is the hour with the most downtime, or in which a law was broken."""
    pictures = audited.result.pictures
    doubled = [one for one in findings_of(audited, "two-owners", "L1") if one.task == "0_0"]
    hour_ms = pictures.worst_hour_ms["two-owners"]
    assert hour_ms <= doubled[0].at[-1] < hour_ms + HOUR_MS
    assert any(group == "two-owners" and one.task == "0_0" for group, one in pictures.ownership)
    assert pictures.worst_hour_ms["calm"] in {MIDNIGHT_MS, MIDNIGHT_MS + HOUR_MS}
    owned = [one for group, one in pictures.ownership if group == "calm"]
    assert {one.task for one in owned} == {*(f"0_{n}" for n in range(6)), "1_0", "1_1"}
    assert all(one.to_ms is None or one.to_ms >= one.from_ms for one in owned)
    assert {one.outcome for _, one in pictures.warmups} <= {"promoted", "standby", "dropped", "open"}
    assert [one.number for group, one in pictures.generations if group == "calm"]


def test_what_was_found_is_written_down(audited: Audited) -> None:
    async def rows(statement: str) -> list[Any]:
        engine = connect(audited.url)
        async with engine.connect() as connection:
            found = list((await connection.execute(text(statement))).all())
        await engine.dispose()
        return found

    ((state, fatal, groups, report),) = asyncio.run(rows("select state, fatal, groups, report from audit_runs"))
    assert (state, groups) == ("failed", len(audited.result.groups))
    assert fatal == audited.result.fatal > 0
    ((count,),) = asyncio.run(rows("select count(*) from audit_findings"))
    assert count == len(audited.result.findings)
    assert report == str(audited.out / "report-2026-11-18.html")
    assert "two-owners" in (audited.out / "report-2026-11-18.html").read_text(encoding="utf-8")
    for name in ("intervals", "gaps", "warmups", "findings", "measures", "downtime"):
        groups = pq.read_table(audited.out / name / "day=2026-11-18").column("group_id").to_pylist()
        assert ("calm" in groups) == (name != "findings")
    assert any("laws" in line for line in audited.progress)
