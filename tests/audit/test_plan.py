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
