"""What a dashboard is started with."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8421


@dataclass(frozen=True, slots=True)
class Config:
    """Where the coordinators are (their URLs, with commas between them), and how the dashboard is reached.

    ``token`` is shown to the coordinator for visitors who have not signed in: they see with it, and command nothing.
    ``trusted`` says whose certificates the coordinator's is checked against. ``is_secure``: browsers reach the
    dashboard over HTTPS, so that its cookie never travels in clear. ``root_path`` is what an ingress puts in front of
    every path, without a slash at its end.
    """

    server: str
    token: str | None = None
    trusted: ssl.SSLContext | bool = True
    is_secure: bool = False
    root_path: str = ""
    port: int = DEFAULT_PORT
