"""What browsers are served and sent to: names and pages of this dashboard alone, and forms from its own pages."""

import ipaddress
from collections.abc import Collection
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.requests import Request

LOCALHOST = "localhost"


def is_served(host: str, allowed: Collection[str]) -> bool:
    """Whether a `Host` header names this dashboard: by an address, as localhost, or by an ``allowed`` name.

    With DNS rebinding a page elsewhere gives its own name this machine's address, so that a browser takes the dashboard
    for a part of it. Then the browser sends that name here. It cannot do that with an address.
    """
    name = _name_in(f"//{host}")
    return name == LOCALHOST or name in allowed or _is_address(name)


def foreign(request: Request) -> str:
    """Return why a form is refused that comes from elsewhere, as far as the browser reports it; empty if it does not.

    `Sec-Fetch-Site` is not sent over plain HTTP to other hosts than localhost; `Origin` is sent with every form.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    host, allowed = request.headers.get("host"), request.app.state.dashboard.config.allowed_hosts
    # An ingress may have written another Host, and one that hides where links come from has browsers send `null`.
    is_named = origin is None or origin.partition("://")[2] == host or _name_in(origin) in allowed
    if site in {None, "same-origin", "none"} and (is_named or (origin, site) == ("null", "same-origin")):
        return ""
    came_from = repr(origin[:100]) if origin is not None else "another site"
    return (
        f"This form came from {came_from}, and this dashboard was asked as {host!r}. If the first is its address in your"
        " browser, whoever runs it has to name that host in --allowed-hosts."
    )


def place(wanted: str) -> str:
    """Return the page that a visitor wanted, if it is one of this dashboard."""
    return wanted if wanted.startswith("/") and not wanted.startswith(("//", "/\\")) else ""


def _name_in(url: str) -> str:
    with suppress(ValueError):
        return (urlsplit(url).hostname or "").rstrip(".")
    return ""


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False
