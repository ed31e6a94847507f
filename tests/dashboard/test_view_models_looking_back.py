"""Events as sentences, members, generations, plans, and audits."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.fleet import Fleet, at, event, member, warm

from batonpass.core.arrivals.answers import HOW_BLOCKED
from batonpass.core.state.model import Cause
from batonpass.core.state.reasons import MEANINGS
from batonpass.dashboard.view_models import audits, plans
from batonpass.dashboard.view_models.events import event_line, event_lines, generic
from batonpass.dashboard.view_models.generations import because, flows, reasons
from batonpass.dashboard.view_models.members import held_by, matching, member_lines
from batonpass.dashboard.words import CAUSES, DASH, Names
from batonpass.zones import UTC_ZONE

NAMES = Names({"m1": "demo-1", "m2": "demo-2"})
AUDIT = Path(__file__).parent.parent.parent / "docs" / "audit.md"
API = Path(__file__).parent.parent.parent / "docs" / "api.md"


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("handover-done", {"from": "m1", "gap_ms": 38}, "t_0 went from demo-1 to demo-2; nobody ran it for 38 ms."),
        ("takeover-done", {"warm": False, "gap_ms": 9_000}, "demo-2 runs t_0, cold; nobody ran it for 9 s."),
        (
            "takeover-done",
            {"warm": True, "gap_ms": 9_000, "gap_is_lower_bound": True},
            "demo-2 runs t_0, from a warm copy; nobody ran it for at least 9 s.",
        ),
        (
            "takeover-done",
            {"warm": True, "gap_ms": 200, "gap_is_lower_bound": True, "gap_at_most_ms": 45_000},
            "demo-2 runs t_0, from a warm copy; nobody ran it for up to 45 s.",
        ),
        ("takeover-begun", {"from": "m1", "warm": True}, "demo-2 takes t_0 over from demo-1, warm."),
        ("member-gone", {"cause": "expired", "running": 4}, "demo-2 is gone: its lease ran out, and ran 4 tasks."),
        ("member-gone", {"cause": "beamed-up"}, "demo-2 is gone (beamed-up)."),
        (
            "generation",
            {"number": 7, "triggers": ["join"], "moves": 1},
            "Generation 7, because a member joined: 1 move.",
        ),
        ("task-failed", {"detail": "disk full"}, "t_0 failed on demo-2: disk full."),
        ("paused", {"scope": "all", "reason": "upgrade"}, "An operator paused all moves: upgrade."),
        (
            "drain-blocked",
            {"why": "no-eligible-member", "running": 4},
            "demo-2 keeps 4 active tasks: no member may take it; start workers, or undrain one.",
        ),
        (
            "drain-blocked",
            {"why": "drain-timeout", "running": 1},
            "demo-2 keeps 1 active task: drain_timeout_ms is over.",
        ),
        (
            "config-changed",
            {
                "changed": {
                    "max_warmup_replicas": {"from": 2, "to": "10%"},
                    "rack_aware_tags": {"from": [], "to": ["zone"]},
                }
            },
            "Settings were changed: max_warmup_replicas from 2 to 10%, rack_aware_tags from none to zone.",
        ),
        ("task-lost", {"detail": "the disk died."}, "demo-2 lost the state of t_0: the disk died."),
        ("something-new", {"why": "drain"}, "Something new t_0 on demo-2 (its member drains)."),
    ],
)
def test_an_event_is_a_sentence(kind: str, more: dict[str, Any], words: str) -> None:
    assert event_line(event(1, kind, member="m2", task="t_0", **more), NAMES).words == words


def test_every_type_of_event_makes_a_sentence() -> None:
    kinds = re.findall(r"^\| `([a-z-]+)` \| [A-Z]", API.read_text(), re.MULTILINE)
    assert len(kinds) > 30
    for kind in kinds:
        for more in ({"task": "t_0"}, {"tasks": 120, "sample": []}):
            (line,) = event_lines([event(1, kind, **more)], NAMES)
            assert re.fullmatch(r"[\w" + DASH + r"].*[a-z0-9)" + DASH + r"]\.", line.words), (kind, line.words)
            assert "None" not in line.words
            assert line.words != generic(kind, str(more.get("task") or "120 tasks"), "", ""), kind


def test_every_reason_for_which_a_drain_is_blocked_has_words() -> None:
    assert HOW_BLOCKED.keys() <= MEANINGS.keys()


def test_a_drain_that_does_not_get_on_is_marked_as_bad_and_one_that_is_done_as_good() -> None:
    tones = {kind: event_line(event(1, kind, member="m2"), NAMES).tone for kind in ("drain-blocked", "drain-done")}
    assert tones == {"drain-blocked": "bad", "drain-done": "ok"}


def test_every_way_to_go_has_words() -> None:
    assert set(CAUSES) >= {cause.value for cause in Cause}


def test_silent_members_come_first_and_each_says_what_is_particular_about_it() -> None:
    found = [
        member("m1", ["t_0", "t_1"], []),
        member("m2", ["t_2"], [], capacity=2.0),
        member("m9", [], [], suspected=True, silent=True),
    ]
    warm(found[1], "t_0", 500)
    lines = member_lines(found, 100, NAMES)
    assert [(one.name, one.words, one.load) for one in lines] == [
        ("m9", "fallen silent", 0.0),
        ("demo-2", "warms 1 task up", 0.5),
        ("demo-1", "stable", 2.0),
    ]
    assert [one.name for one in matching(lines, "DEMO")] == ["demo-2", "demo-1"]
    assert [one.name for one in matching(lines, "zone=a")] == ["m9"]


def test_what_a_member_has_begins_with_what_it_runs() -> None:
    """Role by role, the worst first, with when each copy is caught up."""
    one = member("m1", ["t_1", "t_0"], ["t_2", "t_3"], revoking=["t_5"])
    warm(one, "t_4", 1_100)
    one["reports"]["t_0"] |= {"state": "failed", "detail": "disk full"}
    one["reports"]["t_3"]["lag"] = None
    assert [(held.task, held.role, held.eta_ms, held.said.get("detail", "")) for held in held_by(one, 100, NAMES)] == [
        ("t_0", "active", None, "disk full"),
        ("t_1", "active", None, ""),
        ("t_5", "gives up", None, ""),
        ("t_4", "warmup", 10_000.0, ""),
        ("t_3", "standby", None, ""),
        ("t_2", "standby", 0.0, ""),
    ]


def test_a_generation_is_shown_by_its_flows() -> None:
    """Moves of actives are gathered by where from, where to and why; standbys that move alone are none."""
    rows = [("m1", "m2", "balance"), ("m1", "m2", "balance"), (None, "m1", "no-owner"), ("m1", "m1", "standby-moves")]
    diff = [
        {"task": f"t_{place}", "from": source, "to": to, "why": code} for place, (source, to, code) in enumerate(rows)
    ]
    assert [(one.source, one.to, one.tasks, one.why) for one in flows(diff)] == [
        ("m1", "m2", 2, "for balance"),
        (None, "m1", 1, "it had no owner"),
    ]
    assert because(["join", "brand-new"]) == "a member joined, brand new"
    assert because([]) == "nothing in particular"
    generation = {"reasons": [{"code": "stays", "task": None, "to": None, "detail": "on m1", "tasks": 6}]}
    assert reasons(generation, NAMES) == [("stays", "on demo-1", 6)]


def test_a_question_is_made_of_what_the_form_says() -> None:
    form = {"join": "2", "capacity": "1.5", "max_warmup_replicas": "10%", "num_standby_replicas": "1"}
    assert plans.wanted(form, ["m2", "m1", "m1"], []) == {
        "join": [{"count": 2, "capacity": 1.5}],
        "drain": ["m1", "m2"],
        "config": {"max_warmup_replicas": "10%", "num_standby_replicas": 1},
    }
    assert plans.wanted({"join": "", "capacity": ""}, [], []) == {}


@pytest.mark.parametrize("form", [{"join": "two"}, {"join": "1", "capacity": "x"}, {"num_standby_replicas": "-"}])
def test_a_question_that_means_nothing_is_refused_with_what_to_write(form: dict[str, str]) -> None:
    """A typing error never becomes another question."""
    with pytest.raises(ValueError, match="write a"):
        plans.wanted(form, [], [])


def test_a_plan_is_shown_before_and_after() -> None:
    members = [member("m1", ["t_0", "t_1"], []), member("m2", ["t_2"], [])]
    plan = {
        "target": {"m1": {"active": ["t_0"]}, "join-1": {"active": ["t_1", "t_2"]}},
        "reasons": [{"task": "t_1", "code": "warming"}, {"task": "t_2", "code": "warmup-budget"}],
        "held_back": [{"task": "t_2", "to": "join-1", "reason": "warmup-budget"}],
    }
    compared = plans.before_and_after(members, plan, NAMES)
    assert [(one.member, one.now, one.then, one.is_new, one.is_gone) for one in compared] == [
        ("m1", 2, 1, False, False),
        ("m2", 1, 0, False, True),
        ("join-1", 0, 2, True, False),
    ]
    assert [(move.task, move.source, move.to, move.why) for move in plans.moves(members, plan)] == [
        ("t_1", "m1", "join-1", "warms up"),
        ("t_2", "m2", "join-1", "waits for a slot"),
    ]


def test_an_audit_is_summed_up_in_words() -> None:
    measures = {
        "availability": 0.99995,
        "downtime_ms": 1_200,
        "balance_mean": None,
        "records": 12_000,
        "brand_new": 3,
        "lower_bound": 4,
    }
    assert audits.measures_of(measures) == [
        ("available", "99.995 %"),
        ("downtime", "1.2 s"),
        ("records", "12,000"),
        ("fewest moves possible", "4"),
        ("brand new", "3"),
    ]
    findings = [
        {"group": "g", "severity": "notice", "number": 1},
        {"group": "h", "severity": "fatal", "number": 2},
        {"group": "g", "severity": "fatal", "number": 3},
    ]
    assert [one["number"] for one in audits.findings_of(findings, "g")] == [3, 1]
    assert [one["number"] for one in audits.findings_of(findings, None)] == [2, 3, 1]
    assert audits.law_words("L1") == "two members may have run a task at once"
    assert audits.law_words("brand-new") == "brand new"


def test_every_finding_that_an_audit_can_make_has_words() -> None:
    documented = re.findall(r"^\| ([A-Za-z0-9, -]+) \| (?:fatal|notice) \|", AUDIT.read_text(), re.MULTILINE)
    names = [name.strip() for one in documented for name in re.split(r", | to ", one)]
    assert len(names) > 15
    assert [name for name in names if audits.law_words(name) == name.replace("-", " ")] == []


def test_a_finding_says_when() -> None:
    """A notice from its first record on; of a law not since an older record that proves it."""
    times = ["2026-11-22T00:34:00Z", "2026-11-22T00:35:00.882Z", "2026-11-22T00:35:00.882Z"]

    def when(severity: str, **evidence: list[object]) -> str:
        return audits.when_of({"severity": severity, "evidence": evidence}, UTC_ZONE)

    both = "22 Nov (2026 )?00:34:00 to 22 Nov (2026 )?00:35:00 UTC"
    assert re.fullmatch(both, when("notice", sequences=[1, 2], at=[*times]))
    assert re.fullmatch("22 Nov (2026 )?00:35:00 UTC", when("fatal", sequences=[1, 2], at=[*times]))
    assert when("notice", at=[]) == when("fatal") == ""


def test_only_addresses_of_the_web_are_links() -> None:
    """What would run as a script is no address."""
    assert [audits.is_address(one) for one in ("https://x/r.html", "/var/r.html", "javascript:alert(1)", None)] == [
        True,
        False,
        False,
        False,
    ]


def test_the_fleet_of_the_tests_is_consistent() -> None:
    fleet = Fleet.of(8, 40)
    active = [grant["task"] for one in fleet.members for grant in one["assignment"]["active"]]
    assert sorted(active + fleet.waiting) == sorted(fleet.tasks)
    assert at(1.5) == "2026-11-20T03:04:06.500Z"
