"""A day that was written down is made again to the same, with and without its traces; what is altered is found."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.audit.replayed import made_again, replayed, written
from tests.audit.small_day import DAY, SCENARIO
from tests.runtime.stories import STORIES, StoryScene, fails_to_be_placed, hands_over, is_suspected
from tests.runtime.test_historian import Written, played

from batonpass.audit.findings import FINDINGS_PER_LAW, STILL
from batonpass.codec.generations import PROBE
from batonpass.core.state.records import ProbeScheduled, RebalanceScheduled
from batonpass.days.generate import rows_of
from batonpass.days.plant import Fault, plant
from batonpass.days.rows import GroupRows

CODE = "code-1"


@pytest.mark.parametrize(
    ("story", "traced"),
    # Whose solver fails is a stand-in; decided again, there is a solver.
    [(story, traced) for story in STORIES for traced in (True, False) if not traced or story is not fails_to_be_placed],
)
def test_a_story_is_made_again_to_the_same(story: Callable[[], StoryScene], *, traced: bool) -> None:
    found = written(story)
    again = made_again("g", found, traced=traced)
    assert [one for one in again.kept.first() if not one.detail.startswith(STILL)] == []
    assert again.replayed == (len(found) if traced else 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("traced", [True, False])
def test_whatever_happens_is_made_again_to_the_same(seed: int, *, traced: bool) -> None:
    scene = played(seed)
    assert made_again(scene.group.id, scene.written, traced=traced).kept.first() == []


def test_other_words_of_another_version_are_no_fault() -> None:
    """A generation's reasons are worded by the program that made it; the same program has to word them alike."""
    scene = played(0)
    place, history = next(
        (place, one.history)
        for place, one in enumerate(scene.written)
        if one.history.generation is not None and one.history.generation.reasons
    )
    assert history.generation is not None
    reasons = tuple(one._replace(detail="in other words") for one in history.generation.reasons)
    other = replace(history, generation=history.generation._replace(reasons=reasons))
    whole = [*scene.written[:place], replace(scene.written[place], history=other), *scene.written[place + 1 :]]
    (fault,) = made_again(scene.group.id, whole, traced=True).kept.first()
    assert "in other words as shown" in fault.detail
    assert made_again(scene.group.id, whole, traced=True, code="code-2").kept.first() == []


def test_histories_of_a_version_that_did_not_tell_when_a_member_was_last_heard_are_no_fault() -> None:
    """It told neither of members for whom nobody waits."""
    found, earlier = written(is_suspected), []
    for one in found:
        changes = tuple(change._replace(heard_ms=None) for change in one.history.changes if change.kind != "waived")
        earlier.append(replace(one, history=replace(one.history, changes=changes)))
    assert any(change.kind == "waived" for one in found for change in one.history.changes)
    assert made_again("g", earlier, traced=True, code="code-0").kept.first() == []
    assert made_again("g", earlier, traced=True).kept.first() != []


@pytest.mark.parametrize("named", [(), (PROBE,), ("join",)])
def test_what_nothing_had_asked_for_a_probe_placed_also_where_no_trigger_is_named(named: tuple[str, ...]) -> None:
    """Earlier programs named no trigger where a probe had placed a target."""
    unasked = []
    for one in written(hands_over):
        records = tuple(record for record in one.records if not isinstance(record, RebalanceScheduled))
        generation = one.history.generation
        shown = generation if generation is None else generation._replace(triggers=named)
        unasked.append(Written(records, replace(one.history, generation=shown), one.trace))
    found = made_again("g", unasked, traced=False).kept.first()
    assert any("triggers" in one.detail for one in found) == (named == ("join",))


def test_what_follows_from_a_decision_that_comes_out_otherwise_is_not_found_again() -> None:
    """A record that was altered has later decisions come out otherwise, too."""
    scene = played(0)
    place, record = next(
        (place, one)
        for place, decision in enumerate(scene.written)
        for one in decision.records
        if isinstance(one, ProbeScheduled) and one.at_ms is not None
    )
    decision = scene.written[place]
    altered = tuple(replace(one, at_ms=1) if one is record else one for one in decision.records)
    again = made_again(scene.group.id, [*scene.written[:place], replace(decision, records=altered)], traced=True)
    (found,) = [one for one in again.kept.first() if one.law == "L10"]
    assert f"probe-scheduled: at_ms 1 then, {record.at_ms} now (the same code)" in found.detail
    whole = [*scene.written[:place], replace(decision, records=altered), *scene.written[place + 1 :]]
    assert [one.detail for one in made_again(scene.group.id, whole, traced=True).kept.first() if one.law == "L10"] == [
        found.detail
    ]


@pytest.fixture(scope="module")
def rows() -> GroupRows:
    """The rows that the small day leaves."""
    return rows_of(SCENARIO, DAY)


def test_a_clean_day_is_decided_again_to_the_same(rows: GroupRows) -> None:
    again = replayed(rows)
    assert again.kept.first() == []
    assert again.replayed == again.decisions == len(rows.tables["traces"]) > 50
    assert (again.differing, again.untraced) == (0, 0)


def test_records_without_a_trace_are_counted(rows: GroupRows) -> None:
    """A group is judged by the replay only where all of it was made again; here retention took the traces."""
    again = replayed(replace(rows, tables={**rows.tables, "traces": []}))
    assert (again.kept.first(), again.replayed, again.untraced) == ([], 0, rows.version)


@pytest.mark.parametrize("fault", [Fault.TWO_OWNERS, Fault.COLD_PROMOTION])
def test_what_no_core_decided_is_found(rows: GroupRows, fault: Fault) -> None:
    """A defective coordinator leaves no trace of such records; what it wrote beside them is as it would be."""
    again = replayed(plant(rows, [fault]))
    (one,) = [one for one in again.kept.first() if one.law == "L10"]
    assert one.detail.startswith("there is no trace of the decision that made records")
    assert all("history" not in one.detail for one in again.kept.first())


def test_a_hole_ends_the_replay(rows: GroupRows) -> None:
    again = replayed(plant(rows, [Fault.SEQUENCE_HOLE]))
    assert again.replayed < again.decisions == len(rows.tables["traces"])
    assert [one.law for one in again.kept.first()] == ["replay-incomplete"]


def test_of_many_findings_the_first_of_each_law_are_kept_and_the_others_counted(rows: GroupRows) -> None:
    lines = rows.tables["assignment_events"]
    kept = [one for one in lines if one[1] == lines[0][1]]
    again = replayed(replace(rows, tables={**rows.tables, "assignment_events": kept}))
    assert [one.law for one in again.kept.first()] == ["L2"] * FINDINGS_PER_LAW
    assert sum(again.kept.left_out.values()) == len(lines) - len(kept) - FINDINGS_PER_LAW > 0


def test_histories_that_begin_late_are_one_finding(rows: GroupRows) -> None:
    lines = rows.tables["assignment_events"]
    last = [one for one in lines if one[1] == lines[-1][1]]
    again = replayed(replace(rows, tables={**rows.tables, "assignment_events": last}))
    (one,) = again.kept.first()
    assert f"the log has {len(lines) - len(last)} changes" in one.detail
