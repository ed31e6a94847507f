"""The zone that a reader wants times in: UTC, unless their browser brings the name of another."""

from typing import Final

from starlette.responses import RedirectResponse, Response

from batonpass.client import Refused
from batonpass.dashboard.login import place
from batonpass.dashboard.request_context import ZONE_COOKIE, RequestContext
from batonpass.zones import zone_named

KEPT_S: Final = 365 * 86_400
"""How long a browser keeps the choice."""


async def choose_zone(context: RequestContext) -> Response:
    """Have this browser keep the name of a zone, and go back to the page where it was chosen."""
    root, wanted = context.dashboard.config.root_path, context.asked("zone")
    try:
        zone = zone_named(wanted)
    except ValueError as error:
        raise Refused(422, {"detail": str(error)}) from None
    answer = RedirectResponse(root + (place(context.asked("next")) or "/"), 303)
    answer.set_cookie(ZONE_COOKIE, zone.name, max_age=KEPT_S, path=root or "/", samesite="lax", httponly=True)
    return answer
