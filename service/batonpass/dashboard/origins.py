"""Which requests of browsers are taken: to names of this dashboard, and forms from its own pages."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
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


def is_own(request: Request) -> bool:
    """Whether a form comes from a page of this dashboard, as far as the browser reports it.

    `Sec-Fetch-Site` is not sent over plain HTTP to other hosts than localhost; `Origin` is sent with every form.
    """
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        # An ingress may have written another Host.
        allowed: Collection[str] = request.app.state.dashboard.config.allowed_hosts
        if _name_in(origin) not in allowed:
            return False
    return request.headers.get("sec-fetch-site") in {None, "same-origin", "none"}


def _name_in(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
