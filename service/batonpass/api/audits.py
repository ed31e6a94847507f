"""Results of the nightly audits: day by day, and one day with its findings and measures."""

import re
from datetime import date
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.api.openapi import route
from batonpass.api.problems import UnknownPath
from batonpass.api.service import json_response, page, read_query, service_of
from batonpass.codec.answers import rfc3339, time_of
from batonpass.codec.bodies import AuditsQuery, FindingsQuery, given
from batonpass.codec.shape import refusal
from batonpass.runtime.audits import AuditDay, AuditFinding

router = APIRouter(prefix="/v1/audits", tags=["audits"])


@route(router, "GET", "", query=AuditsQuery, answers={200: "Audited days, newest first."}, schema="audits_get")
async def list_audits(request: Request) -> Response:
    """List the days that were audited: whether the laws held, and how the newest run of each ended."""
    asked = read_query(request, AuditsQuery)
    with context_of(request).history():
        found = await service_of(request).audits.days(before=given(asked.after), limit=asked.limit + 1)
    return page("audits", found, asked.limit, day_body, lambda one: one.day.isoformat())


@route(
    router,
    "GET",
    "/{day}",
    query=FindingsQuery,
    answers={200: "The day, its findings and its measures."},
    schema="audit_get",
)
async def show_audit(request: Request) -> Response:
    """Show the results of the audit of a day (UTC): its findings with their evidence, measures, and what to change."""
    asked = read_query(request, FindingsQuery)
    day, audits = _day_of(request), service_of(request).audits
    with context_of(request).history():
        found = await audits.day(day)
        if found is None:
            known = f"day {day} was never audited, or that is no longer kept"
            raise UnknownPath(f"{known}; `batonpass audit --day {day}` audits it, GET /v1/audits lists those that were")
        findings = await audits.findings(day, after=asked.after, limit=asked.limit + 1)
        measures = await audits.measures(day)
    shown = findings[: asked.limit]
    upto = shown[-1].number if len(findings) > asked.limit else None
    body = day_body(found) | {"code_version": found.code_version, "report": found.report}
    by_group = {
        "measures": {one.group: dict(one.measures) for one in measures},
        "downtime_by_cause": {one.group: dict(one.downtime_by_cause) for one in measures},
        "recommendations": {one.group: dict(one.recommendation) for one in measures if one.recommendation is not None},
    }
    return json_response(body | {"findings": [finding_body(one) for one in shown], "next": upto} | by_group)


def _day_of(request: Request) -> date:
    said: str = request.path_params["day"]
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", said) is not None:
            return date.fromisoformat(said)
    except ValueError:
        pass
    raise refusal([("path.day", "not a day; write it as 2026-11-20")])


def day_body(one: AuditDay) -> dict[str, Any]:
    """Return how a day's audit stands, and what its newest verdict is."""
    return {
        "day": one.day.isoformat(),
        "state": one.state.value,
        "verdict": ("failed" if one.fatal else "passed") if one.has_verdict else None,
        "started_at": rfc3339(one.started_ms),
        "finished_at": time_of(one.finished_ms),
        "groups": one.groups,
        "records": one.records,
        "fatal": one.fatal,
        "notices": one.notices,
        "detail": one.detail,
    }


def finding_body(one: AuditFinding) -> dict[str, Any]:
    return {
        "number": one.number,
        "group": one.group,
        "law": one.law,
        "severity": one.severity,
        "task": one.task,
        "member": one.member,
        "detail": one.detail,
        "evidence": {"sequences": list(one.sequences), "at": list(one.at)},
    }
