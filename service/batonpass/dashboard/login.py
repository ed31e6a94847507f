"""Signing in with a token, and out again."""

import asyncio
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from batonpass.client import Refused, Unreachable, path
from batonpass.dashboard.origins import foreign, place
from batonpass.dashboard.request_context import TRY_AGAIN, Dashboard, refusal_of
from batonpass.dashboard.sessions import Session
from batonpass.dashboard.words import sentence
from batonpass.explain.remedies import Refusal

FORM_MAX_BYTES: Final = 16_384
FORBIDDEN: Final = 403
WRONG_S: Final = 0.5
"""How long the answer to a wrong token is delayed."""


async def fields(request: Request) -> dict[str, str]:
    """Return the fields of a form, the first of each name; a form that is too large has none."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_MAX_BYTES:
            return {}
    found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[0].strip() for name, values in found.items()}


async def ask(request: Request) -> Response:
    """Show the form that asks for a token."""
    return _form(request.app.state.dashboard, place(request.query_params.get("next", "")))


async def sign_in(request: Request) -> Response:
    """Take a token, and keep it if the coordinator knows it."""
    dashboard: Dashboard = request.app.state.dashboard
    given = await fields(request)
    wanted, token, group = place(given.get("next", "")), given.get("token", ""), given.get("group", "") or None
    if said := foreign(request):
        return _form(dashboard, wanted, said=said, status=FORBIDDEN)
    if not (token.isascii() and token.isprintable()):
        return _form(
            dashboard, wanted, said="That is no token: a token is one line of letters, digits and signs.", status=401
        )
    try:
        session = await admitted(dashboard, token, group)
    except (Refused, Unreachable) as error:
        status = getattr(error, "status", 503)
        if status >= TRY_AGAIN:
            said = sentence(error)
            return _form(dashboard, wanted, said=said, refusal=refusal_of(error), group=group, status=status)
        await asyncio.sleep(WRONG_S)
        bound = "may make this call on group" in str(error) and not group
        more = " Name that group below." if bound else ""
        return _form(dashboard, wanted, said=f"{error}{more}", group=group, status=401)
    return _let_in(dashboard, request, session, wanted)


async def sign_out(request: Request) -> Response:
    """Forget the visitor's token; another site's page cannot ask for it, and its form comes without the cookie."""
    dashboard: Dashboard = request.app.state.dashboard
    if said := foreign(request):
        return PlainTextResponse(f"{said}\n", FORBIDDEN)
    dashboard.sessions.end(request.cookies.get(dashboard.cookie, ""))
    answer = RedirectResponse(f"{dashboard.config.root_path}/login", 303)
    answer.delete_cookie(dashboard.cookie, path=dashboard.config.root_path or "/")
    return answer


async def admitted(dashboard: Dashboard, token: str, group: str | None) -> Session:
    """Return a session for a token that may look, after asking the coordinator what else it allows.

    Raises:
        Refused: when the token may not look.
        Unreachable: when no coordinator answers.
    """
    client = dashboard.shared_client(token, group)
    await client.get(path("groups", group, "explain") if group else "/groups", limit=1)
    try:
        # A token that may read the audit trail may command.
        await client.get(path("groups", group, "commands") if group else "/commands", limit=1)
        may_command = True
    except Refused as refused:
        if refused.status != FORBIDDEN:
            raise
        may_command = False
    return Session(client, may_command, bound_to=group)


def _let_in(dashboard: Dashboard, request: Request, session: Session, wanted: str) -> Response:
    # The earlier session of this name ends, so that a name planted by an attacker is worthless.
    dashboard.sessions.end(request.cookies.get(dashboard.cookie, ""))
    name = dashboard.sessions.begin(session)
    home = path("groups", session.bound_to) if session.bound_to else "/"
    answer = RedirectResponse(dashboard.config.root_path + (wanted or home), 303)
    is_secure = dashboard.config.is_secure or request.url.scheme == "https"
    answer.set_cookie(
        dashboard.cookie,
        name,
        path=dashboard.config.root_path or "/",
        httponly=True,
        # Operators follow links from a chat or an alert to pages, and are to be signed in there. Forms of other sites,
        # and what they embed, come without the cookie.
        samesite="lax",
        secure=is_secure,
    )
    return answer


def _form(
    dashboard: Dashboard,
    wanted: str,
    *,
    said: str = "",
    refusal: Refusal | None = None,
    group: str | None = None,
    status: int = 200,
) -> Response:
    template = dashboard.templates.get_template("login.html")
    given = {"said": said, "refusal": refusal, "wanted": wanted, "bound": group or "", "server": dashboard.client.url}
    text = template.render(given, title="Sign in")
    return HTMLResponse(text, status)
