"""`batonpass serve`: a coordinator on a Postgres of one's own. Everything is set by `BATONPASS_` variables."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from batonpass.bootstrap import serve as run_server
from batonpass.cli.client_context import failing_well, tell
from batonpass.cli.database import require_fit
from batonpass.cli.exits import Exit, Failure, failing_as
from batonpass.cli.listening import bound, end_in_order, require_room
from batonpass.database_url import DatabaseUrl
from batonpass.http_clients import authorities
from batonpass.settings import Settings


def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on (BATONPASS_HOST).")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="The port; 0 takes any free one (BATONPASS_PORT).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say in JSON where it listens.")] = False,
) -> None:
    """Run a coordinator on the Postgres that BATONPASS_DATABASE_URL names; docs/settings.md has every setting."""
    with failing_well(as_json=as_json):
        settings = settings_of({"host": host, "port": port})
        if settings.database_url is None:
            raise Failure(
                Exit.BAD_INPUT,
                "BATONPASS_DATABASE_URL is not set.",
                todo="Set it to postgresql://user:password@host:port/database, or try `batonpass up`, which needs none.",
            )
        require_room(settings.connections_max)
        url = settings.database_url.get_secret_value()
        # Whoever is the first process of a container gets no signal that it does not handle.
        end_in_order()
        try:
            require_fit(url, wait_s=settings.database_wait_s)
        except KeyboardInterrupt:
            return
        listeners = bound(settings.host, settings.port)
        shown = DatabaseUrl.read(url).shown

        def said(at: str) -> None:
            tell(f"Batonpass listens on {at}, on {shown}.", {"url": at, "database": shown}, as_json=as_json)

        listen(settings, listening=said, listeners=listeners)


def settings_of(given: dict[str, Any]) -> Settings:
    """Return the settings from the environment and from ``given``, which takes precedence.

    Raises:
        Failure: naming every invalid variable, or the environment's authorities if they cannot be used.
    """
    with failing_as(Exit.BAD_INPUT, ValueError):
        authorities()
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        faults = [
            {"path": _variables(fault["loc"], fault["msg"]), "reason": fault["msg"].removeprefix("Value error, ")}
            for fault in error.errors()
        ]
        raise Failure(
            Exit.BAD_INPUT, "the settings are not in order.", problem={"type": "invalid-settings", "errors": faults}
        ) from None


def _variables(place: tuple[int | str, ...], said: str) -> str:
    """Return the invalid variable; for a contradiction, the variables that its message names."""
    named = [name for name in Settings.model_fields if re.search(rf"\b(?:batonpass_)?{name}\b", said, re.IGNORECASE)]
    names = named if not place and named else [".".join(map(str, place))]
    return ", ".join(f"BATONPASS_{name.upper()}" for name in names)


def listen(settings: Settings, *, listening: Callable[[str], None], **more: Any) -> None:
    """Serve until interrupted or terminated.

    Raises:
        Failure: when the coordinator cannot start.
    """
    heard: list[str] = []

    def note(url: str) -> None:
        heard.append(url)
        listening(url)

    # The server ends in good order when it is interrupted or terminated, and then raises the signal again.
    try:
        run_server(settings, listening=note, **more)
    except KeyboardInterrupt:
        return
    if not heard:
        raise Failure(Exit.REFUSED, "the coordinator did not start; what it said stands above.")
