"""`batonpass dashboard`: pages for operators, in a process of its own, on the public REST API alone."""

import os
import re
import ssl
from pathlib import Path
from typing import Annotated, Any

import typer

from batonpass.cli.client_context import Folder, check_token, failing_well, find, tell, trusted
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.listening import bound, end_in_order, require_room
from batonpass.dashboard.config import DEFAULT_HOST, DEFAULT_PORT, Config
from batonpass.dashboard.serve import CONNECTIONS_MAX
from batonpass.dashboard.serve import serve as run_server
from batonpass.http_clients import tls_context
from batonpass.settings import unread
from batonpass.terminal import say_on_stderr

ENV = "BATONPASS_DASHBOARD_"
SERVER = "Where the coordinators are, with commas (BATONPASS_URL); left out, the `up` that runs on this machine."
TOKEN = "A token with which everybody who opens a page may look without signing in (better: the variable)."  # noqa: S105 - help


def trimmed(value: Any) -> Any:
    """Return the value of an option by the rule of ``batonpass.variables``."""
    return type(value)(str(value).strip()) if isinstance(value, str | Path) else value


Server = Annotated[str | None, typer.Option("--server", "--url", metavar="URL", help=SERVER)]
Port = Annotated[int, typer.Option(min=0, max=65_535, envvar=f"{ENV}PORT", help="The port; 0 takes any free one.")]
Host = Annotated[str, typer.Option(envvar=f"{ENV}HOST", callback=trimmed, help="The address to listen on.")]
Token = Annotated[str | None, typer.Option(metavar="TOKEN", envvar=f"{ENV}TOKEN", callback=trimmed, help=TOKEN)]
TlsCert = Annotated[
    Path | None, typer.Option(metavar="FILE", envvar=f"{ENV}TLS_CERTFILE", callback=trimmed, help="Serve HTTPS.")
]
TlsKey = Annotated[
    Path | None, typer.Option(metavar="FILE", envvar=f"{ENV}TLS_KEYFILE", callback=trimmed, help="Its key.")
]
BehindTls = Annotated[bool, typer.Option("--behind-tls", envvar=f"{ENV}BEHIND_TLS", help="An ingress serves HTTPS.")]
AllowedHosts = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        envvar=f"{ENV}ALLOWED_HOSTS",
        help="The host names under which browsers reach it, with commas; localhost and addresses need not be named.",
    ),
]
RootPath = Annotated[
    str,
    typer.Option(
        metavar="PATH", envvar=f"{ENV}ROOT_PATH", callback=trimmed, help="What an ingress puts in front of paths."
    ),
]
LogUrl = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar=f"{ENV}LOG_URL",
        callback=trimmed,
        help="Where a worker's log is: {group}, {instance} and {member} in it stand for whose.",
    ),
]


def dashboard(
    server: Server = None,
    port: Port = DEFAULT_PORT,
    host: Host = DEFAULT_HOST,
    token: Token = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_tls: BehindTls = False,
    root_path: RootPath = "",
    allowed_hosts: AllowedHosts = "",
    log_url: LogUrl = "",
    folder: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say in JSON where it listens.")] = False,
) -> None:
    """Serve pages for operators: health of groups, who has what and why, what moves, and commands.

    Whoever opens it signs in with a token of the coordinator, or sees with --token and commands nothing.
    """
    with failing_well(as_json=as_json):
        # A token is never taken from the folder of an `up`: that token is an admin's, and a page is open to all.
        url, _ = find(server, "none", folder)
        check_token(token or "")
        tls = _tls(tls_cert, tls_key)
        say_on_stderr(*(f"batonpass: nothing reads {name}; is it misspelled?" for name in unread(os.environ)))
        authorities = trusted()
        hosts, logs = _names(allowed_hosts), _log_url(log_url)
        require_room(CONNECTIONS_MAX)
        listeners = bound(host, port)
        config = Config(
            url,
            token=token or None,
            trusted=authorities,
            is_secure=behind_tls or tls is not None,
            root_path=f"/{root_path.strip('/')}" if root_path.strip("/") else "",
            allowed_hosts=hosts,
            log_url=logs,
            port=listeners[0].getsockname()[1],
        )
        end_in_order()

        def said(at: str) -> None:
            words = f"Dashboard at {at} (coordinator {url}). Ctrl-C stops it."
            tell(words, {"url": at, "server": url}, as_json=as_json)

        try:
            run_server(config, listeners, tls=tls, listening=said)
        except KeyboardInterrupt:
            return


def _names(given: str) -> frozenset[str]:
    names = frozenset(name.strip().lower().rstrip(".") for name in given.split(",") if name.strip())
    if wrong := sorted(name for name in names if set(name) & set("/:*@ ")):
        raise Failure(
            Exit.BAD_INPUT,
            f"--allowed-hosts: {wrong[0]} is no name of a host.",
            todo="Name hosts alone, without scheme and port, as in batonpass.example.com.",
        )
    return names


def _log_url(given: str) -> str:
    unknown = sorted(set(re.findall(r"\{[^}]*\}?", given)) - {"{group}", "{instance}", "{member}"})
    if unknown or (given and not given.startswith(("http://", "https://"))):
        raise Failure(
            Exit.BAD_INPUT,
            f"--log-url: {unknown[0]} stands for nothing." if unknown else "--log-url is no address of the web.",
            todo="Write for example https://logs.example.com/?q={instance}; {group} and {member} are known too.",
        )
    return given


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if (cert is None) != (key is None):
        raise Failure(Exit.BAD_INPUT, "--tls-cert and --tls-key go together.", todo="Give both, or none.")
    try:
        return None if cert is None else tls_context(cert_file=cert, key_file=key, of_server=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Failure(Exit.BAD_INPUT, f"the certificate or its key cannot be used: {why}.") from None
