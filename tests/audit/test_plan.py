"""What is read for a day: exactly its records, found by bisection, and whatever was so before."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import make_url
from tests.audit.planted import DAY, MIDNIGHT_MS, QUIET_MS
from tests.postgres.databases import run_sql

from batonpass.audit.database import rows as rows_of
from batonpass.audit.plan import MissingDay, plan_day, quoted
from batonpass.audit.reading import CHAIN_BEGIN
from batonpass.codec.traces import TRACE_VERSION, Trace, encode_trace, soft_delta
from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import GroupDeclaration
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import Soft


def test_a_day_is_found_by_bisection(planted_url: str) -> None:
    def rows(sql: str) -> Sequence[tuple[Any, ...]]:
        return rows_of(planted_url, sql)

    plan = plan_day(rows, DAY)
    within = f"at >= '{DAY}T00:00:00Z' and at < '{DAY + timedelta(days=1)}T00:00:00Z'"
    looked = rows(f"select group_id, min(seq), max(seq) from record_log where {within} group by 1 order by 1")  # noqa: S608
    assert [(one.group, one.first, one.last) for one in plan.groups if one.last >= one.first] == list(looked)
    assert {one.group: one.missing for one in plan.groups if one.missing} == {"tail-lost": 2}
    assert all(one.known and one.base == 0 for one in plan.groups if one.group != "quiet")
    (quiet,) = (one for one in plan.groups if one.group == "quiet")
    ((snapshot,),) = rows("select version from snapshots where group_id = 'quiet'")
    assert (quiet.base, quiet.known, quiet.last < quiet.first) == (snapshot, True, True)
    assert (plan.begin_ms, plan.end_ms) == (MIDNIGHT_MS, MIDNIGHT_MS + 86_400_000)


def test_a_day_that_goes_on_ends_now(planted_url: str) -> None:
    def rows(sql: str) -> Sequence[tuple[Any, ...]]:
        return rows_of(planted_url, sql)

    now = datetime.fromtimestamp((MIDNIGHT_MS + QUIET_MS) / 1_000, UTC)
    plan = plan_day(rows, DAY, now=now)
    assert plan.end_ms == plan.so_far_ms == MIDNIGHT_MS + QUIET_MS
    assert plan_day(rows, DAY).so_far_ms is None
    with pytest.raises(MissingDay, match="has not begun"):
        plan_day(rows, DAY, now=now - timedelta(days=1))
    with pytest.raises(MissingDay, match="group nobody"):
        plan_day(rows, DAY, group="nobody")


def test_the_clock_of_the_database_says_whether_a_day_goes_on(planted_url: str) -> None:
    """Its records are of that clock, and the machine of the audit may show anything."""

    def rows(sql: str) -> Sequence[tuple[Any, ...]]:
        return [((MIDNIGHT_MS + QUIET_MS) / 1_000,)] if "clock_timestamp" in sql else rows_of(planted_url, sql)

    assert plan_day(rows, DAY).so_far_ms == MIDNIGHT_MS + QUIET_MS


def test_a_day_of_rest_is_one_to_audit_and_one_before_the_first_record_is_not(planted_url: str) -> None:
    def rows(sql: str) -> Sequence[tuple[Any, ...]]:
        return rows_of(planted_url, sql)

    plan = plan_day(rows, DAY + timedelta(days=1))
    assert {one.last < one.first for one in plan.groups} == {True}
    assert {one.group for one in plan_day(rows, DAY).groups} == {one.group for one in plan.groups}
    with pytest.raises(MissingDay, match="or before it"):
        plan_day(rows, DAY - timedelta(days=9))


@pytest.mark.parametrize("setting", ["client_encoding = 'LATIN1'", "standard_conforming_strings = off"])
async def test_a_name_is_read_alike_whatever_the_database_sets_for_its_sessions(own_url: str, setting: str) -> None:
    await run_sql(own_url, f"alter database {make_url(own_url).database} set {setting}")
    name = "b\u00fcro\\' or '1"
    # Said and sent back in the wrong encoding it would still be the same, but not as long.
    assert rows_of(own_url, f"select {quoted(name)}, length({quoted(name)})") == [(name, len(name))]


@pytest.mark.parametrize("said", ["plain", "a\0b", '"soft":{"from_empty":true', '\\"soft": {"from_empty": true}\0'])
@pytest.mark.parametrize("gap", ["", " "])
async def test_where_a_chain_of_traces_begins_is_found_whatever_callers_say(
    database_url: str, said: str, gap: str
) -> None:
    """Postgres takes no JSON apart that has a NUL anywhere in it."""
    declared = GroupDeclaration(GroupId("g"), None, {said: said, "rack_aware_tags": [said]})
    for version, older in enumerate((None, None, Soft(), Soft())):
        trace = encode_trace(Trace((declared,), 1, version, soft_delta(older, Soft()), Policy(), "code")).decode()
        assert trace.count('"soft":{"from_empty":') == 1
        payload = trace.replace('"soft":{"from_empty":', f'"soft":{gap}{{"from_empty":{gap}')
        row = f"'g', '{DAY}', {version}, {TRACE_VERSION}, 'code', '', {quoted(payload)}".replace(":", r"\:")
        await run_sql(database_url, f"insert into traces values ({row})")  # noqa: S608
    asked = [CHAIN_BEGIN.format(group=quoted("g"), first=first) for first in (0, 1, 3)]
    assert rows_of(database_url, f"select {', '.join(asked)}") == [(-1, 0, 1)]
