"""What others wait for: a heartbeat that says it passes although its member calls too often."""

from dataclasses import replace
from typing import Any

import pytest

from batonpass.core.arrivals.reports import has_news
from batonpass.core.state.ids import GroupId, MemberId, TaskId
from batonpass.core.state.inputs import Heartbeat
from batonpass.core.state.model import Grant, Group, Member, Revocation, Role
from batonpass.core.state.pmap import PMap
from batonpass.core.state.soft import MeasuredReport, MemberSoft, Soft, TaskReport

T0, T1, T2 = TaskId("0_0"), TaskId("0_1"), TaskId("0_2")
M1 = MemberId("m1")


def member_of(**parts: Any) -> tuple[Group, Soft]:
    """Return a group with one member at epoch 5 that has echoed 4: an active, a warmup, and one active revoked at 5."""
    member = Member(
        M1,
        0,
        epoch=5,
        assignment=PMap({T0: Grant(Role.ACTIVE, 2, 0, 1), T1: Grant(Role.WARMUP, 3, 0)}),
        revoking=PMap({T2: Revocation(5, 0, active=True)}),
    )
    member_soft = MemberSoft(
        0, seq=10, echoed=5, reports={T1: MeasuredReport(TaskReport("warmup", lag=50_000), 0, lag=50_000)}
    )
    return Group(GroupId("orders"), members=PMap({M1: replace(member)})), Soft(
        members=PMap({M1: replace(member_soft, **parts)})
    )


KEPT = {T0: TaskReport("active"), T1: TaskReport("warmup", lag=40_000), T2: TaskReport("active")}


@pytest.mark.parametrize(
    ("why", "news", "heartbeat", "known"),
    [
        ("nothing is new", False, Heartbeat(M1, 11, 5, KEPT), {}),
        ("it reports nothing", False, Heartbeat(M1, 11, 5, None), {}),
        ("it answers an assignment for the first time", True, Heartbeat(M1, 11, 5, None), {"echoed": 4}),
        ("its epoch is one that nobody has given", False, Heartbeat(M1, 11, 6, KEPT), {}),
        ("it is a late or doubled one", False, Heartbeat(M1, 10, 5, KEPT | {T2: TaskReport("none")}), {}),
        ("it gives up what was revoked", True, Heartbeat(M1, 11, 5, KEPT | {T2: TaskReport("none")}), {}),
        ("it was demoted in place", True, Heartbeat(M1, 11, 5, KEPT | {T2: TaskReport("standby", lag=0)}), {}),
        ("what was revoked is absent", True, Heartbeat(M1, 11, 5, {T0: KEPT[T0], T1: KEPT[T1]}), {}),
        ("its epoch is older than the revocation", False, Heartbeat(M1, 11, 4, {T0: KEPT[T0]}), {}),
        ("a warmup has caught up", True, Heartbeat(M1, 11, 5, KEPT | {T1: TaskReport("warmup", lag=10_000)}), {}),
        (
            "a warmup has caught up by its positions",
            True,
            Heartbeat(M1, 11, 5, KEPT | {T1: TaskReport("warmup", positions=(("", 90),), end_offsets=(("", 100),))}),
            {},
        ),
        (
            "a warmup has not caught up by its positions",
            False,
            Heartbeat(M1, 11, 5, KEPT | {T1: TaskReport("warmup", positions=(("", 90),), end_offsets=(("", 90_000),))}),
            {},
        ),
        (
            "a warmup reports a position whose end the coordinator has to read",
            True,
            Heartbeat(M1, 11, 5, KEPT | {T1: TaskReport("warmup", positions=(("", 90),))}),
            {},
        ),
        (
            "a warmup's lag is still not known",
            False,
            Heartbeat(M1, 11, 5, KEPT | {T1: TaskReport("warmup", positions=(("", 90),))}),
            {"reports": {T1: MeasuredReport(TaskReport("warmup"), 0)}},
        ),
        (
            "a warmup was caught up before",
            False,
            Heartbeat(M1, 11, 5, KEPT | {T1: TaskReport("warmup", lag=10)}),
            {"reports": {T1: MeasuredReport(TaskReport("warmup", lag=20), 0, lag=20)}},
        ),
        ("nobody knows the member", False, Heartbeat(MemberId("m9"), 11, 5, {}), {}),
    ],
)
def test_news_is_what_others_wait_for(why: str, *, news: bool, heartbeat: Heartbeat, known: dict[str, Any]) -> None:
    assert has_news(*member_of(**known), heartbeat, 1_000) is news, why


def test_a_copy_that_is_caught_up_in_time_is_news_too() -> None:
    """The settings count time as well, at the rate that was last measured."""
    group, soft = member_of(reports={T1: MeasuredReport(TaskReport("warmup", lag=50_000), 0, lag=50_000, rate=1_000.0)})
    heartbeat = Heartbeat(M1, 11, 5, KEPT | {T1: TaskReport("warmup", lag=20_000)})
    assert not has_news(group, soft, heartbeat, 1_000)
    timed = replace(group, config=replace(group.config, acceptable_catchup_ms=20_000))
    assert has_news(timed, soft, heartbeat, 1_000)


def test_nothing_is_news_of_a_member_that_this_coordinator_has_not_heard() -> None:
    """What it says next asks for its full report, and everything is looked at then."""
    group, _ = member_of()
    assert not has_news(group, Soft(), Heartbeat(M1, 11, 5, KEPT | {T2: TaskReport("none")}), 1_000)


def test_a_warmup_is_news_if_it_is_caught_up_when_it_is_first_reported() -> None:
    group, soft = member_of(reports={})
    assert has_news(group, soft, Heartbeat(M1, 11, 5, KEPT | {T1: TaskReport("warmup", lag=10_000)}), 1_000)
