"""`batonpass dashboard`: pages for operators, in a process of its own, on the public REST API alone."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from batonpass.cli.desk import DEFAULT_URL, Folder, failing_well, find
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.rest import is_url, trusted
from batonpass.dashboard.config import Config
from batonpass.dashboard.serve import Certificate, bind
from batonpass.dashboard.serve import serve as run_server

PORT = 8421


def dashboard(
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "--url",
            metavar="URL",
            help="Where the coordinator is (BATONPASS_URL); left out, the `up` that runs on this machine.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65_535, envvar="BATONPASS_DASHBOARD_PORT", help="The port; 0 takes any free one."),
    ] = PORT,
    host: Annotated[
        str, typer.Option(envvar="BATONPASS_DASHBOARD_HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="BATONPASS_DASHBOARD_TOKEN",
            help="A token with which everybody who opens a page may look without signing in (better: the variable).",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", envvar="BATONPASS_DASHBOARD_TLS_CERTFILE", help="Serve HTTPS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", envvar="BATONPASS_DASHBOARD_TLS_KEYFILE", help="Its key.")
    ] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", envvar="BATONPASS_DASHBOARD_BEHIND_TLS", help="An ingress serves HTTPS.")
    ] = False,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", envvar="BATONPASS_DASHBOARD_ROOT_PATH", help="What an ingress puts in front.")
    ] = "",
    folder: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say in JSON where it listens.")] = False,
) -> None:
    """Serve pages for operators: health of groups, who has what and why, what moves, and commands.

    Whoever opens it signs in with a token of the coordinator, or sees with --token and commands nothing.
    """
    with failing_well(as_json=as_json):
        # A token is never taken from the folder of an `up`: that one is an admin's, and a page is open to all.
        url, _ = find(server, "none", folder)
        if not is_url(url):
            raise Failure(Exit.BAD_INPUT, f"{url!r} is not the URL of a coordinator.", todo=f"As in {DEFAULT_URL}.")
        if (tls_cert is None) != (tls_key is None):
            raise Failure(Exit.BAD_INPUT, "--tls-cert and --tls-key go together.", todo="Give both, or none.")
        certificate = Certificate(str(tls_cert), str(tls_key)) if tls_cert and tls_key else None
        root = f"/{root_path.strip('/')}" if root_path.strip("/") else ""
        try:
            listener = bind(host, port)
        except OSError as error:
            raise Failure(
                Exit.REFUSED,
                f"cannot listen on {host}:{port}: {error.strerror or error}.",
                todo="Choose another port with --port N, or any free one with --port 0.",
            ) from None
        config = Config(
            url,
            token=token or None,
            trusted=trusted(),
            is_secure=behind_tls or certificate is not None,
            root_path=root,
            port=listener.getsockname()[1],
        )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            run_server(config, listener, certificate=certificate, listening=lambda at: _say(at, url, as_json=as_json))
        except OSError as error:
            raise Failure(
                Exit.BAD_INPUT, f"the certificate or its key cannot be used: {error.strerror or error}."
            ) from None
        except KeyboardInterrupt:
            return


def _say(at: str, url: str, *, as_json: bool) -> None:
    said = (
        json.dumps({"url": at, "server": url})
        if as_json
        else f"Dashboard at {at} (coordinator {url}). Ctrl-C stops it."
    )
    sys.stdout.write(said + "\n")
    sys.stdout.flush()
