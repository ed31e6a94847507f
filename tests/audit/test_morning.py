"""What a person who reads the report in the morning is told to do: whether it is over, what helps, what harms."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.audit.sample import DAY, at_ms, clean_result, recommendation
from typer.testing import CliRunner

from batonpass.audit import job, report, whatif
from batonpass.audit.findings import STILL, AuditResult, Finding, GroupDay, Severity, headline
from batonpass.audit.job import Audit
from batonpass.audit.whatif import Tried
from batonpass.audit_words import advised
from batonpass.cli import app
from batonpass.cli import audits as cli_audits
from batonpass.laws import BROKEN


def found(law: str, detail: str, *at: int, task: str | None = "0_7", group: str = "orders") -> Finding:
    """Return a finding: of a law a broken one, else a notice."""
    severity = Severity.FATAL if law[0] == "L" else Severity.NOTICE
    return Finding(group, law, severity, task, "a", detail, (), at)


def day_with(*findings: Finding, **more: Any) -> AuditResult:
    """Return a day with findings."""
    return replace(clean_result(), findings=findings, **more)


def test_a_card_says_when_it_was_first_and_last_so_and_whether_it_still_was() -> None:
    once, again = found("L7", "taken at 1", at_ms(4, 0, 1)), found("L7", "taken at 2", at_ms(5), at_ms(14, 31, 40))

    def when(*findings: Finding, **more: Any) -> str:
        (law,) = report._laws(day_with(*findings, **more))
        (card,) = law["cards"]
        return str(card["when"])

    assert when(once) == when(found("L7", "taken at 1", at_ms(3), at_ms(4, 0, 1))) == "at 04:00:01"
    assert when(found("flapping-member", "went", at_ms(3), at_ms(4))) == "first 03:00:00, last 04:00:00"
    assert when(again, once) == "first 04:00:01, last 14:31:40"
    assert when(again, once, left_out={"L7": 1}) == "first 04:00:01, last of those kept 14:31:40"
    assert when(found("L9", f"{STILL}: it waits", at_ms(4, 0, 1))) == "at 04:00:01, still so when the day ended"
    assert when(found("L9", f"{STILL}: it waits", at_ms(4)), so_far_ms=at_ms(5)) == "at 04:00:00, still so at 05:00:00"
    assert when(found("L9", "it waits")) == ""


def test_the_last_command_says_whether_it_goes_on() -> None:
    (law,) = report._laws(day_with(found("L9", "it waits", at_ms(4))))
    assert law["commands"][-1] == "batonpass audit --day today --group orders --no-what-if"
    assert "The last command says whether it goes on." in report.as_html(day_with(found("L9", "it waits", at_ms(4))))


def advice(*findings: Finding) -> str:
    """Return what the article of a law says that its break means, and what to do."""
    (law,) = report._laws(day_with(*findings))
    return " ".join(f"{means} {todo}" for means, todo in law["advice"])


UNKNOWN_KIND = "record 7 cannot be read: no record kind 'x' is known; a newer program may have written it"
UNKNOWN_VERSION = "record 8 cannot be read: granted: version 9 is not known; this program reads up to 2"


def test_a_record_of_a_newer_program_is_not_taken_for_damage() -> None:
    newer = advice(found("L2", UNKNOWN_KIND), found("L2", UNKNOWN_VERSION))
    assert "Audit the day with the newest version" in newer
    assert "changed rows" not in newer
    both = advice(found("L2", UNKNOWN_KIND), found("L2", "record 9 is missing"))
    assert "Audit the day with the newest version" in both
    assert "changed rows" in both
    assert "newest version" not in advice(found("L2", "record 7 cannot be read: granted, version 2: JSON is malformed"))


def test_a_restore_is_the_last_step_with_what_it_takes_back() -> None:
    said = advice(found("L2", "record 9 is missing"))
    steps = [
        "changed rows",
        "start none",
        "stop every coordinator",
        "every group goes back",
        "db recovered",
    ]
    assert sorted(steps, key=said.index) == steps
    assert "docs/operations.md" in said


ELSE_FIRST = "If L2 is broken in the group too, begin there."


def test_who_is_told_to_stop_a_member_looks_at_the_rows_first() -> None:
    """Where rows are missing, assignments may be wrong, and the member that lacks the task may be its owner."""
    said = advice(found("L1", "granted at 1 while a might still run it"))
    assert said.index(ELSE_FIRST) < said.index("stop the one whose assignment lacks it")


def test_a_token_that_did_not_grow_is_not_told_as_two_owners() -> None:
    for sentence in (
        "granted at 1 under token 4, which is not above 5 that was granted before",
        "token 4 is not above 5",
        "its token fell from 5 to 4",
        "adopted under the token 4, which was given",
    ):
        said = advice(found("L1", sentence))
        assert "may refuse the rightful owner" in said
        assert "same records" not in said
        assert ELSE_FIRST in said
    assert "same records" in advice(found("L1", "granted at 1 while b, which had token 4, might still run it"))


def test_l2_and_l4_have_one_rule_for_coordinators() -> None:
    """One that does not own the group may be ended; none is started before it is known who changed rows."""
    rows = advice(found("L2", "record 9 is missing"))
    deposed = advice(found("L4", "a coordinator of epoch 1 appended after one of epoch 2"))
    for said in (rows, deposed, advice(found("L2", UNKNOWN_KIND))):
        assert "start none" in said
        assert "restart" not in said
    assert "end only one that does not own the group (L4)" in rows
    assert "end the one that is not the owner" in deposed


def test_the_headline_says_whether_it_is_over() -> None:
    """Only where it is known of every finding, and of what was not kept or not read."""

    def said(*findings: Finding, **more: Any) -> list[str]:
        return [one for one in report.in_short(day_with(*findings, **more)) if one.startswith(("No law", "This day"))]

    once, again = found("L7", "taken", at_ms(3), at_ms(4)), found("L1", "granted", at_ms(20, 30))
    assert said(once, again) == ["No law was broken after 20:30:00, for 3 h 30 min until the day ended."]
    assert said(once, so_far_ms=at_ms(5)) == ["No law was broken after 04:00:00, for 1 h until it was read."]
    assert said() == []
    unknown = ["This day alone does not say whether it is over: the last command under each law does."]
    assert said(once, found("L9", f"{STILL}: it waits", at_ms(4))) == said(found("L2", "lost")) == unknown
    assert said(once, left_out={"L7": 1}) == said(once, found("replay-incomplete", "record 7 is missing")) == unknown


def stuck(task: str, *at: int, group: str = "orders", ends: bool = False) -> Finding:
    """Return a task that nobody was granted, until the day ended or until the second instant."""
    said = "granted to nobody for 60 minutes from then (expired)" + ("" if ends else f", still so {STILL}")
    return found("stuck-task", said, *at, task=task, group=group)


def test_the_headline_says_which_tasks_nobody_ran_for_hours() -> None:
    def said(*findings: Finding, **more: Any) -> list[str]:
        return [one for one in report.in_short(day_with(*findings, **more)) if one.startswith("Nobody")]

    late = stuck("0_3", at_ms(4, 0, 1))
    assert said(late) == ["Nobody ran 0_3 of orders from 04:00:01 to the end of the day (19 h 59 min)."]
    assert said(late, so_far_ms=at_ms(6, 0, 1)) == ["Nobody ran 0_3 of orders from 04:00:01 to 06:00:01 (2 h)."]
    assert said(stuck("0_3", at_ms(4), at_ms(6), ends=True)) == [
        "Nobody ran 0_3 of orders from 04:00:00 to 06:00:00 (2 h)."
    ]
    assert said(stuck("0_3", at_ms(4), at_ms(4, 20), ends=True)) == []
    more = [stuck("0_4", at_ms(5)), late, stuck("0_5", at_ms(5))]
    assert said(*more) == [
        "Nobody ran 0_3 of orders from 04:00:01 to the end of the day (19 h 59 min), nor 2 more of its tasks for long."
    ]
    assert len(said(*(stuck("0_3", at_ms(4), group=f"g{number}") for number in range(9)))) == report.GROUPS_STUCK


def test_a_stuck_task_has_advice_and_commands() -> None:
    (law,) = report._laws(day_with(stuck("0_3", at_ms(4))))
    assert law["commands"][0] == "batonpass explain orders 0_3"
    assert "task-without-owner" in advice(stuck("0_3", at_ms(4)))


def test_the_group_that_was_down_longest_comes_first() -> None:
    (one,) = clean_result().groups
    down = replace(one, group="down", measures={**one.measures, "downtime_ms": 9_000_000})
    day = day_with(found("L7", "taken", at_ms(4), group=one.group), groups=(one, down))
    assert [each.group for each in report._context(day, {})["ranked"]] == ["down", one.group]


def test_nothing_is_recommended_where_the_log_of_the_day_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day that is simulated from rows that contradict each other says nothing of other settings."""
    seen: list[str] = []

    def try_out(_tables: object, groups: Iterable[GroupDay], *_: object, **__: object) -> Tried:
        seen.extend(one.group for one in groups)
        return Tried()

    monkeypatch.setattr(whatif, "recommend", try_out)
    audit = Audit("postgresql://nobody@127.0.0.1:9/nothing", DAY)
    (one,) = clean_result().groups
    groups = tuple(replace(one, group=law) for law in ("L1", "L2", "L4", "L7"))
    day = day_with(*(found(law, "odd", group=law) for law in ("L1", "L2", "L4", "L7")), groups=groups)
    tables: Any = SimpleNamespace(spark=None)
    result = job._advised(tables, audit, day, lambda _: None)
    assert seen == ["L7"]
    why = {one.group: one.detail for one in result.findings if one.law == "what-if-incomplete"}
    assert set(why) == {"L1", "L2", "L4"}
    assert why["L2"] == "other settings were not tried: L2 is broken in the group, and its day cannot be trusted"


def test_a_recommendation_says_that_both_sides_are_simulated() -> None:
    (said,) = advised({"orders": asdict(recommendation())})
    assert "In the simulation of the day, downtime goes from 2 min 16 s to 14 s" in said.sentence


def test_what_is_recommended_for_several_groups_is_said_once() -> None:
    one = recommendation()
    same, keep = replace(one, group="clicks", confidence="sure"), replace(one, group="quiet", recommended=one.present)
    first, last = advised({each.group: asdict(each) for each in (keep, one, same)})
    assert (first.groups, last.groups, last.change) == ("orders and clicks", "quiet", "")
    assert "downtime goes from 4 min 33 s to 27 s" in first.expected
    text = report.as_html(day_with(recommendations=(keep, one, same)))
    assert text.count("Change max_warmup_replicas from 2 to 4") == 1
    assert "clicks: sure" in text
    lines = cli_audits.advice({each.group: asdict(each) for each in (keep, one, same)})
    assert [line.split(":")[0].strip() for line in lines] == [
        f"Change {first.change}. In the simulation of the day, {first.expected}.",
        *("orders", "clicks", "Keep the settings of quiet", "quiet"),
    ]


def test_the_advice_to_pause_has_the_command_and_what_it_holds() -> None:
    said = advice(found("L8", "2 handovers from running owners"))
    assert "`batonpass pause GROUP --for 30m`" in said
    known = CliRunner().invoke(app, ["pause", "--help"]).stdout
    assert "--for" in known
    assert "--all" in known
    assert "with --all also drains, moves of failed tasks and new copies" in said


def test_the_headline_says_in_how_many_groups_of_how_many() -> None:
    one = found("L7", "taken", group="clicks")
    assert headline(day_with(one)) == "L7 was broken, in 1 group."
    more = (*clean_result().groups, *(replace(clean_result().groups[0], group=f"g{number}") for number in range(2)))
    assert headline(day_with(one, groups=more)) == "L7 was broken, in 1 group of 3."


def test_a_laws_only_finding_is_open_and_a_folded_card_names_its_task() -> None:
    single = report.as_html(day_with(found("L7", "taken at 1", at_ms(4))))
    assert '<details class="card" open>' in single
    assert single.count("taken at 1") == 1
    folded = report.as_html(
        day_with(found("L7", "taken at 1", at_ms(4)), found("L7", "taken at 2", at_ms(5), task="0_8"))
    )
    assert '<details class="card">' in folded
    assert "<b>orders</b> · 2 alike · 0_7 and more" in folded


def test_the_runbook_says_of_each_law_what_the_report_says() -> None:
    """In the same order, the worst law first, with the same commands, and that L2 comes before others."""
    page = (Path(__file__).parents[2] / "docs" / "runbooks" / "audit-failed.md").read_text(encoding="utf-8")
    said = {
        law: text
        for laws, text in re.findall(r"^   - \*\*(.+?)\*\*(.*(?:\n     .*)*)", page, re.MULTILINE)
        for law in laws.split(", ")
    }
    assert list(said) == list(BROKEN)
    for law, (_, todo) in BROKEN.items():
        for command in re.findall(r"`batonpass (?:db )?\w+", todo):
            assert command in said[law], law
        assert ("L2 is broken" in said[law]) == ("L2 is broken" in todo), law
