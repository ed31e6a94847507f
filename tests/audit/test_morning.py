"""What a person who reads the report in the morning is told to do: whether it is over, what helps, what harms."""

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
from batonpass.audit.morning import Morning, Standing, all_over, commands_of, to_begin_with
from batonpass.audit.whatif import Tried
from batonpass.audit_words import advised
from batonpass.cli import app
from batonpass.cli import audits as cli_audits
from batonpass.laws import MEANINGS


def found(law: str, detail: str, *at: int, task: str | None = "0_7", group: str = "orders") -> Finding:
    """Return a finding: of a law a broken one, else a notice."""
    severity = Severity.FATAL if law[0] == "L" else Severity.NOTICE
    return Finding(group, law, severity, task, "a", detail, (), at)


def day_with(*findings: Finding, **more: Any) -> AuditResult:
    """Return a day with findings."""
    return replace(clean_result(), findings=findings, **more)


def told(*findings: Finding, **more: Any) -> list[dict[str, Any]]:
    """Return what the report says of findings, in its order."""
    return Morning(day_with(*findings, **more)).found()


def test_a_card_says_when_it_was_first_and_last_so_and_whether_it_is_over() -> None:
    once, again = found("L7", "taken at 1", at_ms(4, 0, 1)), found("L7", "taken at 2", at_ms(5), at_ms(14, 31, 40))

    def when(*findings: Finding, **more: Any) -> str:
        (one,) = told(*findings, **more)
        (card,) = one["cards"]
        assert card["states"] == one["states"]
        ((_, standing, said),) = card["states"]
        return f"{standing.words}, {said}"

    assert when(once) == when(found("L7", "taken at 1", at_ms(3), at_ms(4, 0, 1))) == "over, 04:00:01"
    flaps = found("flapping-member", "went", at_ms(3), at_ms(4))
    assert when(flaps) == when(flaps, so_far_ms=at_ms(5)) == "over, 03:00:00 to 04:00:00"
    assert when(flaps, so_far_ms=at_ms(4)) == "not over, since 03:00:00"
    assert when(again, once) == "over, 04:00:01 to 14:31:40"
    unknown = "not known, 04:00:01 to 14:31:40"
    assert when(again, once, left_out={"L7": 1}) == unknown, "who was not kept came later"
    assert when(found("L7", "taken")) == "not known, "
    assert when(found("L9", f"{STILL}: it waits", at_ms(4, 0, 1))) == "not over, since 04:00:01"
    beyond = found("L1", "granted, until a minute after midnight", at_ms(23), at_ms(23, 59) + 120_000)
    assert when(beyond) == "not over, since 00:01:00"
    assert when(found("L2", "record 7 is missing", at_ms(4))) == "not over, "


def test_what_happened_in_a_group_with_wrong_rows_may_go_on() -> None:
    """Its log may lack the very record that would say so, and L2 comes first there."""
    first = found("L7", "taken", at_ms(4))
    for lost in (found("L2", "record 9 is missing", at_ms(3)), found("replay-incomplete", "record 9 is missing")):
        standing = {one["law"]: one["standing"] for one in told(first, lost)}
        assert standing["L7"] is Standing.UNKNOWN
        standing = {one["law"]: one["standing"] for one in told(first, replace(lost, group="clicks"))}
        assert standing["L7"] is Standing.OVER


def test_the_last_command_says_whether_it_goes_on() -> None:
    last = "batonpass audit --day today --group orders --no-what-if"
    source = report.as_html(day_with(found("L9", "it waits")))
    assert "1 not known: the last command of each tells." in source
    assert re.sub(r"</?span[^>]*>", "", source).count(last) == 1
    assert commands_of(found("L9", "it waits"), DAY)[-1] == last


def test_the_page_says_once_which_commands_need_a_coordinator() -> None:
    """And what to do without one: to start it over wrong rows would do harm."""
    late, rows = found("L9", "it waits", at_ms(4)), found("L2", "record 9 is missing", at_ms(3))
    for findings, start in (
        ((late, late), "If no coordinator runs, start one"),
        ((late, rows), "Start no coordinator before L2 is settled"),
    ):
        source = report.as_html(day_with(*findings))
        told = f" {start}; while none runs, only <code>batonpass db"
        assert source.count("while none runs, only") == source.count(told) == 1
    assert "while none runs, only" not in report.as_html(day_with(found("what-if-incomplete", "no time was left")))


def test_rows_that_are_wrong_are_found_again_by_the_audit_of_the_same_day() -> None:
    """Today begins with a snapshot behind them, and says nothing of them."""
    *_, last = commands_of(found("L2", "record 9 is missing", at_ms(4)), DAY)
    assert last == f"batonpass audit --day {DAY} --group orders --no-what-if"


def test_no_command_tells_whether_other_settings_can_be_tried() -> None:
    untried = found("what-if-incomplete", "other settings were not tried: L1 is broken in the group")
    assert commands_of(untried, DAY) == []
    assert '<pre class="commands">' not in report.as_html(day_with(untried))


STILL_BOTH = replace(
    found("L1", f"granted at 1 while b might still run it, still so {STILL}", at_ms(20)), others=("b",)
)


def test_two_owners_of_now_come_before_everything() -> None:
    """While both write, each minute costs more than not to know who changed rows."""
    rows = found("L2", "record 9 is missing", at_ms(3))
    assert commands_of(STILL_BOTH, DAY)[0] == "batonpass members orders"
    first, then = told(rows, STILL_BOTH)
    assert (first["law"], then["law"]) == ("L1", "L2")
    assert headline(day_with(rows, STILL_BOTH)) == (
        "Two members may have run a task at once (L1); 1 more law broken (L2), in 1 group."
    )
    over = replace(STILL_BOTH, detail="granted at 1 while b might still run it, until 2, when b had stopped")
    assert [one["law"] for one in told(over, rows)] == ["L2", "L1"]
    assert told(rows, STILL_BOTH)[0]["cards"][0]["older"] == {"b": "batonpass evict orders b"}
    assert told(over)[0]["cards"][0]["older"] == {}, "there is nobody to stop"


def test_the_first_screen_says_in_words_what_happened_to_which_task_and_when() -> None:
    source = report.as_html(day_with(STILL_BOTH, found("flapping-member", "went", at_ms(3), at_ms(4), task=None)))
    row, notice = re.findall(r"<tr class.*?</tr>", source.partition("</header>")[0], re.DOTALL)
    assert "two members may have run a task at once</a> (L1)" in row
    assert re.search(
        r'<td>0_7 of orders: b with a</td><td>\s*<b class="still_so">not over</b>, since 20:00:00\s*</td>', row
    )
    assert re.search(r'<td>orders: a</td><td>\s*<b class="over">over</b>, 03:00:00 to 04:00:00\s*</td>', notice)


def test_of_two_owners_all_are_named_by_their_names_and_commands_have_the_id() -> None:
    """The older ones first: they are to stop."""
    drawn = "0f0e0d0c-0000-4000-8000-00000000000a"
    both = replace(STILL_BOTH, others=(drawn,), detail=STILL_BOTH.detail.replace("while b", f"while {drawn}"))
    source = report.as_html(day_with(both, names={"orders": {drawn: "w1, run 2"}}))
    assert source.count("w1, run 2 with a") == 3
    text = re.sub(r"<.*?>", "", source)
    assert (
        text.count(f"End w1, run 2, the older owner of 0_7 (batonpass evict orders {drawn} if you cannot reach it)")
        == 2
    )
    assert f"\n# if you cannot reach w1, run 2: batonpass evict orders {drawn}\n" in text
    assert not re.search("^batonpass evict", text, re.MULTILINE), "who pastes the box evicts nobody"


def test_what_was_so_from_a_grant_on_is_told_from_then_on() -> None:
    said = "granted at 1 while b might still run it, until 2, when b had stopped"
    over = replace(found("L1", said, at_ms(3), at_ms(20, 36), at_ms(20, 38)), sequences=(7, 9))
    assert told(over)[0]["states"] == [("", Standing.OVER, "20:36:00 to 20:38:00")]
    assert told(over)[0]["todo"] == "Check what the sinks took in that time (20:36:00 to 20:38:00)."


def overlap(member: str, *at: int, ended: str = "", sequence: int = 9, task: str = "0_7") -> Finding:
    """Return an overlap of a member with b, which had the task since record 7; until ``ended`` stopped, or still so."""
    said = f"granted at 1 while b might still run it, {f'until 2, when {ended} had stopped' if ended else f'still so {STILL}'}"
    return replace(found("L1", said, at_ms(3), *at, task=task), member=member, sequences=(7, sequence), others=("b",))


def test_overlaps_with_one_owner_that_never_stopped_are_one_fault() -> None:
    """It is so from the first of them on, whoever came and went meanwhile."""
    came, stays = overlap("flapping.7", at_ms(20, 38), at_ms(20, 40), ended="flapping.7"), overlap("c", at_ms(20, 41))
    (one,) = told(stays, came, found("L2", "record 9 is missing", at_ms(3)))[:1]
    (card,) = one["cards"]
    assert one["where"] == "0_7 of orders: b with flapping.7, then c"
    assert card["states"] == one["states"] == [("", Standing.STILL_SO, "since 20:38:00")]
    assert one["todo"].endswith("Check what the sinks took in that time (since 20:38:00).")
    again = replace(stays, sequences=(17, 19))
    assert len(told(again, came)[0]["cards"]) == 2, "it had stopped, and was granted the task again"
    assert len(told(overlap("c", at_ms(20, 41), task="0_8"), came)[0]["cards"]) == 2


def test_an_overlap_whose_end_is_in_the_log_is_over() -> None:
    """Also where another record is missing."""
    came = overlap("flapping.7", at_ms(20, 38), at_ms(20, 40), ended="flapping.7")
    states = {one["law"]: one["states"] for one in told(came, found("L2", "record 9 is missing", at_ms(3)))}
    assert states["L1"] == [("", Standing.OVER, "20:38:00 to 20:40:00")]


def test_of_an_overlap_whose_end_is_not_known_the_older_owner_is_to_be_ended_if_it_goes_on() -> None:
    lost = replace(overlap("c", at_ms(20, 41)), detail="granted at 1 while b might still run it")
    first, then = told(found("L2", "record 9 is missing", at_ms(3)), lost)
    assert (first["law"], then["states"]) == ("L2", [("", Standing.UNKNOWN, "20:41:00")])
    assert then["todo"].endswith(
        "in that time (20:41:00). If it is not over, end the older owner, which is named first."
    )
    assert "older owner" not in told(lost)[0]["todo"]


def test_what_to_do_first_is_an_act() -> None:
    """That of the first box, with the command to look with; tasks that nobody runs do not wait for it."""

    def said(*findings: Finding) -> str:
        return re.sub(r" (Start no|If no) coordinator .*", "", to_begin_with(told(*findings)))

    both = "End b, the older owner of 0_7 (`batonpass evict orders b` if you cannot reach it); look first: `batonpass members orders`."
    assert said(STILL_BOTH, found("L2", "record 9 is missing", at_ms(3))) == both
    down, ended = stuck("0_3", at_ms(4), group="clicks"), stuck("0_3", at_ms(4), at_ms(6), group="pay", ends=True)
    beside = "At the same time, clicks: `batonpass explain clicks 0_3` (no members? Start workers)."
    assert said(STILL_BOTH, down, ended) == f"{both} {beside}"
    hold = "See what holds the task back (docs/runbooks/task-without-owner.md); look first: `batonpass explain clicks 0_3`."
    assert said(down) == hold
    several = "End the older owners, which are named first (`batonpass evict` if you cannot reach them); look first: "
    assert said(STILL_BOTH, replace(STILL_BOTH, others=("c", "b"))).startswith(several)
    assert said(STILL_BOTH, replace(STILL_BOTH, task="0_8", others=("c",))).startswith(several)
    over = replace(STILL_BOTH, detail="granted at 1 while b might still run it, until 2, when b had stopped")
    assert said(over).startswith("Check what the sinks took in that time (20:00:00); look first: ")
    assert said(found("futile-probes", "nothing", task=None)) == "Look with `batonpass explain orders`."


def test_each_group_has_its_own_state_where_they_differ() -> None:
    """As long as they are few."""
    untraced = found("L10", "there is no trace of the decision", at_ms(8))
    pay = replace(untraced, group="pay", at=(at_ms(13),))
    (one,) = (row for row in told(untraced, pay, found("L2", "lost", at_ms(3))) if row["law"] == "L10")
    assert one["states"] == [("orders", Standing.UNKNOWN, "08:00:00"), ("pay", Standing.OVER, "13:00:00")]
    assert one["standing"] is Standing.UNKNOWN
    page = re.sub(r"\s+", " ", re.sub(r"<.*?>", "", report.as_html(day_with(untraced, pay))))
    assert "orders over, 08:00:00; pay over, 13:00:00 " in page
    assert told(untraced, replace(pay, at=untraced.at))[0]["states"] == [("", Standing.OVER, "08:00:00")]
    many = [replace(pay, group=f"g{number}", at=(at_ms(number),)) for number in range(4)]
    assert told(*many)[0]["states"] == [("", Standing.OVER, "00:00:00 to 03:00:00")]


def test_a_move_is_told_from_whom_to_whom_and_who_had_a_task_that_nobody_runs_is_not() -> None:
    moved = replace(found("L7", "b was told to stop for a", at_ms(4)), others=("b",))
    assert told(moved)[0]["where"] == "0_7 of orders: b to a"
    assert told(stuck("0_3", at_ms(4)))[0]["where"] == "0_3 of orders (20 h)"


def test_a_time_before_the_day_has_its_date() -> None:
    before = replace(STILL_BOTH, sequences=(7,), at=(at_ms(-4),))
    assert told(before)[0]["states"] == [("", Standing.STILL_SO, "since 2026-11-19 20:00:00")]
    assert "Records 7; at 2026-11-19 20:00:00." in report.as_html(day_with(before))


def test_a_folded_card_names_the_member_that_its_findings_have_in_common() -> None:
    alike = [found("stuck-warmup", "no progress", at_ms(4), task=task) for task in ("0_1", "0_2")]
    assert "· 2 times · 0_1 and 1 more · a ·" in report.as_html(day_with(*alike))
    assert "· 0_1 · a ·" in report.as_html(day_with(alike[0]))
    assert " · a ·" not in report.as_html(day_with(alike[0], replace(alike[1], member="b")))


def test_each_card_has_the_commands_of_its_group_the_worst_group_first() -> None:
    """Worst is what is not over, then the group with the most broken laws, then the most of it."""
    over = [found("L1", "granted", at_ms(4), group=group) for group in ("a", "b", "b", "c", "d")]
    still = found("L1", f"granted, still so {STILL}", at_ms(3), group="z")
    (one, other) = told(*over, still, found("L7", "taken", at_ms(4), group="c"))
    assert [card["group"] for card in one["cards"]] == ["z", "c", "b", "a", "d"]
    assert (one["where"], other["where"]) == ("0_7 of z: a; 0_7 of c: a; 0_7 of b: a; 2 more", "0_7 of c: a")
    source = report.as_html(day_with(*over, still))
    for group in "abcdz":
        assert source.count(f"batonpass members {group}\n") == 1


def test_what_to_begin_with_stands_first_everywhere() -> None:
    """The headline, the first lines and the articles have one order: that in which to work."""
    names = ["L7", "stuck-task", "L1", "flapping-member", "L2", "L4"]
    findings = [found(name, "granted to nobody", at_ms(4), group=name) for name in names]
    assert [one["law"] for one in told(*findings)] == ["L2", "L1", "L4", "stuck-task", "L7", "flapping-member"]
    source = report.as_html(day_with(*findings))
    assert "Stored rows are missing or wrong (L2); 3 more laws broken (L1, L4, L7), in 4 groups." in source
    heads = re.findall(r"<h3>.*?</span> .*? \(([\w-]+)\) · ", source)
    lines = re.findall(r'<a href="#found-\d">.*?</a> \(([\w-]+)\)', source)
    assert heads == lines == ["L2", "L1", "L4", "stuck-task", "L7", "flapping-member"]


def test_what_an_older_program_decided_is_a_notice_that_asks_for_nothing() -> None:
    older = replace(found("L10", "decided differently", at_ms(4)), severity=Severity.NOTICE)
    assert [(one["law"], one["meaning"].todo) for one in told(older, stuck("0_3", at_ms(4)))][1] == ("L10", "")


def advice(*findings: Finding) -> str:
    """Return what the report says that findings mean, and what to do, the worst first."""
    return " ".join(f"{one['meaning'].title}: {one['meaning'].means} {one['meaning'].todo}" for one in told(*findings))


def test_each_kind_has_one_advice_with_its_own_groups_and_the_worse_comes_first() -> None:
    token = found("L1", "granted at 1 under token 4, which is not above 5", at_ms(3), group="a")
    both = found("L1", "granted at 1 while a might still run it", at_ms(4), group="z")
    first, then = told(token, both, found("L1", "granted while b might still run it", at_ms(4), group="z"))
    assert (first["where"], first["count"], then["where"], then["count"]) == ("0_7 of z: a", 2, "0_7 of a: a", 1)
    assert "same records" in first["meaning"].means
    assert "may refuse the rightful owner" in then["meaning"].means
    assert report.as_html(day_with(token, both)).count("What to do now.") == 2


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
        "start no coordinator",
        "stop every coordinator",
        "every group goes back",
        "db recovered",
    ]
    assert sorted(steps, key=said.index) == steps
    assert "docs/operations.md" in said


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
    assert "same records" in advice(found("L1", "granted at 1 while b, which had token 4, might still run it"))


def test_records_that_no_decision_made_are_not_told_as_a_decision_that_differs() -> None:
    said = advice(
        found("L10", "there is no trace of the decision that made record 7; what follows cannot be decided again")
    )
    assert said.startswith("records stand in the log of which no decision is known: ")
    assert "who or what wrote them" in said


def test_l2_and_l4_have_one_rule_for_coordinators() -> None:
    """One that does not own the group may be ended; none is started before it is known who changed rows."""
    rows = advice(found("L2", "record 9 is missing"))
    deposed = advice(found("L4", "a coordinator of epoch 1 appended after one of epoch 2"))
    for said in (rows, deposed, advice(found("L2", UNKNOWN_KIND))):
        assert "start no" in said
        assert "restart" not in said
    assert "end only one that does not own the group (L4)" in rows
    assert "end the one that is not the owner" in deposed


def test_the_headline_says_whether_it_is_over() -> None:
    """Of all that asks for something to be done; what else is worth a look stands in its line."""

    def said(*findings: Finding, **more: Any) -> str:
        return all_over(told(*findings, **more))

    once, again = found("L7", "taken", at_ms(3), at_ms(4)), found("L4", "wrote", at_ms(20, 30))
    assert said(once, again, found("futile-probes", "nothing")) == "Yes, as far as the log of the day tells."
    waits, lost = found("L9", f"{STILL}: it waits", at_ms(4)), found("L2", "lost", group="clicks")
    assert said(once, waits) == "1 not over, 1 over."
    assert said(waits, lost) == "2 not over."
    unknown = ": the last command of each tells."
    assert said(once, again, left_out={"L7": 1}) == f"1 not known, 1 over{unknown}"
    assert said(found("futile-probes", "nothing")) == f"1 not known{unknown}"
    assert said(once, waits, lost, left_out={"L7": 1}) == "2 not over, 1 not known."


def stuck(task: str, *at: int, group: str = "orders", ends: bool = False) -> Finding:
    """Return a task that nobody was granted, until the day ended or until the second instant."""
    said = "granted to nobody for 60 minutes from then (expired)" + ("" if ends else f", still so {STILL}")
    return found("stuck-task", said, *at, task=task, group=group)


def test_a_task_that_nobody_ran_for_hours_is_in_the_headline() -> None:
    def said(*findings: Finding, **more: Any) -> str:
        return Morning(day_with(*findings, **more)).not_run()

    late = stuck("0_3", at_ms(4, 0, 1))
    assert said(late) == "Nobody ran 0_3 of orders for 19 h 59 min."
    assert said(late, so_far_ms=at_ms(6, 0, 1)) == "Nobody ran 0_3 of orders for 2 h."
    assert said(stuck("0_3", at_ms(4), at_ms(6), ends=True)) == "Nobody ran 0_3 of orders for 2 h."
    assert said(stuck("0_3", at_ms(4), at_ms(4, 20), ends=True)) == said() == ""
    more = [stuck("0_4", at_ms(5)), late, stuck("0_5", at_ms(4, 30), at_ms(4, 45), ends=True)]
    assert said(*more) == "Nobody ran 2 tasks for up to 19 h 59 min."
    assert said(*more, left_out={"stuck-task": 1}) == "Nobody ran at least 2 tasks for up to 19 h 59 min."
    source = report.as_html(day_with(late))
    assert "Every law held. Nobody ran 0_3 of orders for 19 h 59 min.</h1>" in source
    assert '<header class="bad">' in source


def test_a_task_that_nobody_ran_has_its_place_by_severity_and_how_long_it_was() -> None:
    """The longest first, those that still wait before all."""
    short, late = stuck("0_1", at_ms(1), at_ms(9), ends=True, group="b"), stuck("0_3", at_ms(23), group="c")
    (many,) = told(stuck("0_1", at_ms(4)), stuck("0_2", at_ms(5)))
    assert many["where"] == "orders (2 tasks, 20 h)"
    (one,) = told(short, late, stuck("0_2", at_ms(4), group="a"))
    assert one["severity"] == "down"
    assert one["where"] == "0_2 of a (20 h); 0_3 of c (1 h); 0_1 of b (8 h)"
    assert one["cards"][0]["commands"][:2] == ["batonpass explain a 0_2", "batonpass members a"]
    assert "task-without-owner" in one["meaning"].todo


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
    laws = ("L1", "L2", "L4", "L7", "unreadable-snapshot")
    groups = tuple(replace(one, group=law) for law in laws)
    day = day_with(*(found(law, "odd", group=law) for law in laws), groups=groups)
    tables: Any = SimpleNamespace(spark=None)
    result = job._advised(tables, audit, day, lambda _: None)
    assert seen == ["L7"]
    why = {one.group: one.detail for one in result.findings if one.law == "what-if-incomplete"}
    assert set(why) == {"L1", "L2", "L4", "unreadable-snapshot"}
    assert why["L2"] == "other settings were not tried: its day cannot be trusted (L2)"


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
    said = "A task was moved to a member that had to restore it first (L7), in 1 group"
    assert headline(day_with(one)) == f"{said}."
    more = (*clean_result().groups, *(replace(clean_result().groups[0], group=f"g{number}") for number in range(2)))
    assert headline(day_with(one, groups=more)) == f"{said} of 3."
    token = found("L1", "granted at 1 under token 4, which is not above 5")
    assert headline(day_with(token)) == "A fencing token did not grow (L1), in 1 group."
    assert headline(day_with(token, STILL_BOTH)) == "Two members may have run a task at once (L1), in 1 group."


def test_a_folded_card_names_its_task_and_is_told_whole() -> None:
    said = f"taken at 1 {'because of what is said here at some length ' * 9}and at last"
    folded = report.as_html(day_with(found("L7", said, at_ms(4)), found("L7", said, at_ms(5), task="0_8")))
    assert "<b>orders</b> · 2 times · 0_7 and 1 more" in folded
    assert f"{said}</span></summary>" in folded
    assert "ellipsis" not in folded.partition("</style>")[0]


def test_more_than_two_cards_are_folded_together() -> None:
    some = [found("L7", "taken", at_ms(4), group=group) for group in "abc"]
    assert "All 3 causes, each with its commands and records" in report.as_html(day_with(*some))
    assert "each with its commands" not in report.as_html(day_with(*some[:2]))


def test_the_runbook_says_of_each_law_what_the_report_says() -> None:
    """In the same order, with the same commands."""
    page = (Path(__file__).parents[2] / "docs" / "runbooks" / "audit-failed.md").read_text(encoding="utf-8")
    said = {
        name: text
        for names, text in re.findall(r"^   - \*\*(.+?)\*\*(.*(?:\n     .*)*)", page, re.MULTILINE)
        for name in names.split(", ")
    }
    assert list(said) == list(MEANINGS)
    for name, meaning in MEANINGS.items():
        for command in re.findall(r"`batonpass (?:db )?\w+", meaning.todo):
            assert command in said[name], name
