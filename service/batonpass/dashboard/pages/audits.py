"""Results of the nightly audits."""

from typing import Final

from starlette.responses import Response

from batonpass.audit_words import advised
from batonpass.client import Refused, path
from batonpass.dashboard.request_context import RequestContext
from batonpass.dashboard.view_models import audits

PAGE: Final = 60
FINDINGS: Final = 500
FORBIDDEN: Final = 403


async def show_audits(context: RequestContext) -> Response:
    """Show the days that were audited; if there are none, how to audit one."""
    group = context.request.path_params.get("group")
    said, found = "", None
    try:
        found = await context.client.get("/audits", limit=PAGE, after=context.asked("after") or None)
    except Refused as refused:
        # A token that is bound to a group may not see all audits.
        if refused.status != FORBIDDEN:
            raise
        said = str(refused)
    return context.show(
        "audits.html",
        days=[] if found is None else found["audits"],
        next=None if found is None else found["next"],
        said=said,
        of=group,
    )


async def show_audit(context: RequestContext) -> Response:
    """Show what the audit of one day found, with its evidence, measures, and advice."""
    group = context.request.path_params.get("group")
    day = str(context.request.path_params["day"])
    one = await context.client.get(path("audits", day), limit=FINDINGS, after=context.asked_number("after") or None)
    chosen = [name for name in sorted(one["measures"]) if group is None or name == group]
    return context.show(
        "audit.html",
        title=f"Audit of {day}",
        live=one["state"] == "running",
        one=one,
        of=group,
        findings=audits.findings_of(one["findings"], group),
        measures=[(name, audits.measures_of(one["measures"][name])) for name in chosen],
        downtime={name: one["downtime_by_cause"].get(name, {}) for name in chosen},
        advice={
            name: advised({name: one["recommendations"][name]})[0] for name in chosen if name in one["recommendations"]
        },
    )
