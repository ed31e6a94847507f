"""What all pages share: the coordinator, the visitor's session, and the templates."""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from batonpass import __version__
from batonpass.client import TO_TRUST_IT, UNREADABLE, CoordinatorClient, Refused, Unreachable, Untrusted, path
from batonpass.dashboard import words
from batonpass.dashboard.config import Config
from batonpass.dashboard.origins import place
from batonpass.dashboard.sessions import Session, Sessions
from batonpass.dashboard.shared_client import SharedClient
from batonpass.dashboard.view_models import audits
from batonpass.dashboard.view_models.gaps import KINDS
from batonpass.dashboard.view_models.generations import because
from batonpass.dashboard.view_models.grid import LEGEND
from batonpass.dashboard.view_models.timeline import SPANS
from batonpass.explain.remedies import REFUSALS, Refusal
from batonpass.group_words import STANDING_STILL, also, is_other_than
from batonpass.zones import UTC_ZONE, Zone, zone_named

ZONE_COOKIE: Final = "batonpass_zone"
ZONE_KEPT_S: Final = 365 * 86_400
"""How long a browser keeps the zone that its reader chose."""

PART: Final = "x-part"
"""The header by which the script of a page asks only for the part in its middle."""

SLOWER: Final = 12
"""A page is fetched again only after this many times the time that it took to make, which limits the load."""

LEAST_EVERY_MS: Final = 2_000
SIGNED_OUT: Final = 401
TRY_AGAIN: Final = 500

ALARMING: Final = frozenset({"trouble", "attention"})
"""The levels of health that the title of a page begins with."""

TABS: Final[Mapping[str, str]] = {
    "group": "Now",
    "grid": "Grid",
    "warmups": "Warmups",
    "members": "Members",
    "timeline": "Timeline",
    "gaps": "Handovers",
    "generations": "Generations",
    "events": "Events",
    "plan": "What if",
    "audits": "Audit",
}
"""What the tabs of a group are called, by the ends of their paths."""

_TAB_OF: Final = {"tasks": "grid", "find": "grid", "trail": "events"}
"""Of pages that have no tab of their own, where they belong."""

LISTED: Final = 100
"""How many entries of a list a page shows at once, unless it says otherwise."""

T = TypeVar("T")
Page = Callable[["RequestContext"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """Some entries of a list: where they begin, and how many there are in all. ``name`` is that of its parameter."""

    entries: Sequence[T]
    begin: int
    size: int
    total: int
    name: str


class Dashboard:
    """One running dashboard."""

    def __init__(self, config: Config, client: CoordinatorClient) -> None:
        self.config = config
        self.client = client
        self.sessions = Sessions()
        # All who have not signed in share a session, if there is a token for them. It commands nothing.
        onlooking = SharedClient(client, config.token) if config.token else None
        self.onlooker = Session(onlooking, may_command=False, is_shared=True) if onlooking else None
        self.stranger = Session(SharedClient(client, ""), may_command=False, is_shared=True)
        self.closing = asyncio.Event()
        self.templates = _templates(config.root_path)
        self._clients: dict[str, SharedClient] = {}

    @property
    def cookie(self) -> str:
        """The name of the cookie: cookies are shared by all ports of a host, so the port is in it."""
        return f"batonpass_{self.config.port}"

    def session_of(self, request: Request) -> Session | None:
        """Return the session of whoever makes a request; of somebody who has not signed in, the one that all share.

        None: only those who have signed in may look.
        """
        return self.sessions.find(request.cookies.get(self.cookie, "")) or self.onlooker

    def shared_client(self, token: str, bound_to: str | None) -> SharedClient:
        """Return the client of a token; all sessions with the same token share it."""
        digest = hashlib.sha256(f"{bound_to or ''}\n{token}".encode()).hexdigest()
        in_use = self.sessions.clients()
        self._clients = {name: one for name, one in self._clients.items() if one in in_use or name == digest}
        if digest not in self._clients:
            self._clients[digest] = SharedClient(self.client, token, bound_to=bound_to)
        return self._clients[digest]


@dataclass(slots=True)
class RequestContext:
    """One request of a visitor who may look."""

    dashboard: Dashboard
    request: Request
    session: Session
    began: float

    @property
    def client(self) -> SharedClient:
        """Return the coordinator, called with this visitor's token."""
        return self.session.client

    @property
    def now(self) -> datetime:
        return self.client.now

    @property
    def group(self) -> str:
        return str(self.request.path_params["group"])

    @property
    def zone(self) -> Zone:
        """Return the zone that this browser wants times in; UTC if it names none that is known here."""
        try:
            return zone_named(self.request.cookies.get(ZONE_COOKIE) or UTC_ZONE.name)
        except ValueError:
            return UTC_ZONE

    @property
    def tab(self) -> str:
        """Return the key of the tab that a page belongs to; of one without a group, what its path begins with."""
        place = self.request.url.path.removeprefix(self.dashboard.config.root_path).split("/")
        key = (place[3:] or ["group"])[0] if "group" in self.request.path_params else place[1]
        return _TAB_OF.get(key, key)

    def asked(self, name: str) -> str:
        """Return a parameter of the query, without blanks around it."""
        return self.request.query_params.get(name, "").strip()

    def asked_number(self, name: str, *, most: int = 1_000_000_000) -> int:
        """Return a whole number of the query that is not negative; 0 if it is left out or invalid."""
        text = self.asked(name)
        # Python makes no number of thousands of digits.
        return min(int(text[:19]), most) if text.isascii() and text.isdigit() else 0

    def part(self, entries: Sequence[T], size: int = LISTED, name: str = "begin") -> Part[T]:
        """Return the entries from the one on that the parameter ``name`` counts, ``size`` at most."""
        begin = self.asked_number(name, most=max(len(entries) - 1, 0))
        return Part(entries[begin : begin + size], begin, size, len(entries), name)

    def here(self, **changes: Any) -> str:
        """Return the address of this very page with some parameters changed; one that is None is left out."""
        kept = [(name, value) for name, value in self.request.query_params.multi_items() if name not in changes]
        return f"?{urlencode([(name, value) for name, value in (*kept, *changes.items()) if value not in (None, '')])}"

    def at(self, *names: str) -> str:
        """Return a path below ``/v1/groups`` and this group, quoted."""
        return path("groups", self.group, *names)

    def show(self, template: str, *, status: int = 200, live: bool = True, **context: Any) -> Response:
        """Render a page, or only its part if the page's own script asks for that."""
        took_ms = (time.perf_counter() - self.began) * 1_000
        common = {
            "context": self,
            "session": self.session,
            "group": self.request.path_params.get("group"),
            "here": self.request.url.path.removeprefix(self.dashboard.config.root_path) or "/",
            "every_ms": max(LEAST_EVERY_MS, round(took_ms * SLOWER)),
            "live": live,
            "log_of": partial(log_of, self.dashboard.config.log_url, self.request.path_params.get("group")),
            "health_level": "",
            "headline": "",
            # By the coordinator's clock, by which its script counts on; a page about groups says when it was so.
            "now": self.now.isoformat(),
            "zone": self.zone,
            "names": self.client.names,
            "tab": self.tab,
            "has_tabs": True,
            "title": TABS.get(self.tab, ""),
            "layout": "part.html" if PART in self.request.headers else "page.html",
            "server": self.dashboard.client.url,
        }
        given: dict[str, Any] = common | {
            name: value for name, value in context.items() if (name, value) != ("now", None)
        }
        group = given["group"] if given["group"] != given["title"] else ""
        alarm = given["health_level"].capitalize() if given["health_level"] in ALARMING else ""
        given["whole_title"] = " · ".join(part for part in (alarm, given["title"], group, "Batonpass") if part)
        given["flash"], self.session.flash = self.session.flash, ""
        text = self.dashboard.templates.get_template(template).render(given)
        return HTMLResponse(text, status)


def guarded(page: Page, *, is_open: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """Turn a page into an endpoint that only visitors who may look can reach, or all, and that shows errors."""

    async def endpoint(request: Request) -> Response:
        dashboard: Dashboard = request.app.state.dashboard
        session = dashboard.session_of(request) or (dashboard.stranger if is_open else None)
        if session is None:
            return _signed_out(dashboard, request)
        context = RequestContext(dashboard, request, session, time.perf_counter())
        try:
            return await page(context)
        except Unreachable as error:
            return _error_page(context, 503, words.sentence(error), *refusal_of(error))
        except Refused as refused:
            if refused.status == SIGNED_OUT and session is dashboard.onlooker:
                said = f"The dashboard's own token is of no use: {refused}"
                return _error_page(context, SIGNED_OUT, said, "Sign in, or have it started with another --token.")
            if refused.status == SIGNED_OUT:
                dashboard.sessions.end(request.cookies.get(dashboard.cookie, ""))
                return _signed_out(dashboard, request)
            return _error_page(context, refused.status, str(refused), *refusal_of(refused))
        except (*UNREADABLE, jinja2.UndefinedError) as error:
            unread = dashboard.client.unread(error)
            if unread is error:
                raise
            todo = "Check --server. If a coordinator is there, use a dashboard of its version."
            return _error_page(context, 502, words.sentence(unread), todo)

    return endpoint


async def choose_zone(context: RequestContext) -> Response:
    """Have this browser keep the name of a zone, and go back to the page where it was chosen."""
    root = context.dashboard.config.root_path
    try:
        zone = zone_named(context.asked("zone"))
    except ValueError as error:
        raise Refused(422, {"detail": str(error)}) from None
    answer = RedirectResponse(root + (place(context.asked("next")) or "/"), 303)
    answer.set_cookie(ZONE_COOKIE, zone.name, max_age=ZONE_KEPT_S, path=root or "/", samesite="lax", httponly=True)
    return answer


def refusal_of(error: Unreachable | Refused) -> Refusal:
    """Return what to do about a call that was not answered, or refused, and the runbook."""
    if isinstance(error, Refused):
        return REFUSALS.get(error.kind, Refusal(""))
    if isinstance(error, Untrusted):
        return Refusal(TO_TRUST_IT, "no-coordinator")
    return Refusal(
        "Workers go on with what they have. Start a coordinator, or look at what lies in between.", "no-coordinator"
    )


def _signed_out(dashboard: Dashboard, request: Request) -> Response:
    if PART in request.headers:
        return JSONResponse({"said": "You are not signed in any more.", "todo": "Sign in again."}, SIGNED_OUT)
    query = f"?{request.url.query}" if request.url.query else ""
    wanted = (request.url.path.removeprefix(dashboard.config.root_path) or "/") + query
    back = "" if request.method != "GET" or wanted == "/" else f"?{urlencode({'next': wanted})}"
    return RedirectResponse(f"{dashboard.config.root_path}/login{back}", 303)


def _error_page(context: RequestContext, status: int, said: str, todo: str, runbook: str = "") -> Response:
    if PART in context.request.headers:
        return JSONResponse({"said": said, "todo": todo}, status)
    # A temporary error is fetched again; a lasting one is not.
    live = status >= TRY_AGAIN
    given = {"said": said, "todo": todo, "runbook": runbook, "title": "Sorry", "has_tabs": False}
    return context.show("error.html", status=status, live=live, **given)


def _templates(root_path: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("batonpass.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["to"] = lambda *names, **query: linked(root_path, *names, **query)
    environment.globals["static"] = lambda name: f"{root_path}/static/{name}?{__version__}"
    environment.globals["version"] = __version__
    environment.globals |= {"w": words, "audits": audits, "because": because}
    environment.globals |= {"TABS": TABS, "KINDS": KINDS, "SPANS": SPANS, "LEGEND": LEGEND}
    environment.globals["STANDING_STILL"] = STANDING_STILL
    environment.tests["other_than"] = is_other_than
    environment.filters["duration"] = words.duration
    environment.filters["number"] = words.number
    environment.filters["ago"] = words.ago
    environment.filters["soon"] = words.soon
    environment.filters["also"] = also
    return environment


def log_of(template: str, group: str | None, member: str, instance: str | None) -> str:
    """Return the address of a member's log, from the operator's template; empty if there is none."""
    named = {"{group}": group or "", "{instance}": instance or member, "{member}": member}
    return re.sub("|".join(map(re.escape, named)), lambda found: quote(named[found[0]], safe=""), template)


def linked(root_path: str, *names: object, **query: Any) -> str:
    """Return the address of a page from the parts of its path, quoted, and its query; a None is left out."""
    given = {name: value for name, value in query.items() if value is not None}
    return root_path + (path(*map(str, names)) or "/") + (f"?{urlencode(given)}" if given else "")
