"""The configuration of a dashboard."""

import ssl
from dataclasses import dataclass
from typing import Final

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8421


@dataclass(frozen=True, slots=True)
class Config:
    """Where the coordinators are (their URLs, with commas between them), and how the dashboard is reached.

    ``token`` is sent to the coordinator for visitors who have not signed in: they look with it, and command nothing.
    ``trusted`` has the authorities that the coordinator's certificate is checked against. ``is_secure``: browsers reach
    the dashboard over HTTPS, so that its cookie never travels in clear. ``root_path`` is what an ingress puts in front
    of every path, without a slash at its end. ``allowed_hosts`` are the names, in small letters, under which browsers
    reach the dashboard, beside localhost and addresses. ``log_url`` is the address of a
    worker's log, in which ``{group}``, ``{instance}`` and ``{member}`` stand for whose it is.
    """

    server: str
    token: str | None = None
    trusted: ssl.SSLContext | bool = True
    is_secure: bool = False
    root_path: str = ""
    allowed_hosts: frozenset[str] = frozenset()
    log_url: str = ""
    port: int = DEFAULT_PORT
