"""What the operators' commands share: where the coordinator is, how they print, and how they fail.

A command is a coroutine whose first parameter is a `ClientContext`; `client_command` adds the options that all commands
have.
"""

import asyncio
import functools
import inspect
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from batonpass.cli.exits import Exit, Failure, failing_as
from batonpass.cli.folder import Running, UpFolder, folder_named, running_here
from batonpass.cli.spans import CLOCK, span_ms
from batonpass.cli.tables import table
from batonpass.client import (
    AGAIN_S,
    TO_TRUST_IT,
    UNREADABLE,
    ApiError,
    CoordinatorClient,
    Foreign,
    Refused,
    Reply,
    Untrusted,
    path,
    sendable,
    trusted_by_environment,
    urls_in,
)
from batonpass.core.state.durations import duration
from batonpass.explain.remedies import REFUSALS, Refusal
from batonpass.group_words import name_of
from batonpass.http_clients import proxy_for
from batonpass.private_files import read_private
from batonpass.terminal import say, say_on_stderr, screen
from batonpass.variables import variable

DEFAULT_URL = "http://127.0.0.1:8420"
TO_REACH_ONE = (
    "Start one with `batonpass up`, say where it is with --url or BATONPASS_URL, or wait for it: --patience 30s."
)
TO_READ_IT = "Check --url or BATONPASS_URL. If a coordinator is there, use a `batonpass` of its version."
NAMED_MAX: Final = 20
"""How many members are named to whoever names one that is not there."""

BY_STATUS = {
    400: Exit.BAD_INPUT,
    401: Exit.NOT_ALLOWED,
    403: Exit.NOT_ALLOWED,
    404: Exit.NOT_THERE,
    405: Exit.BAD_INPUT,
    413: Exit.BAD_INPUT,
    422: Exit.BAD_INPUT,
    429: Exit.UNREACHABLE,
}

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Where the coordinator is; several with commas (BATONPASS_URL)."),
]
Token = Annotated[
    str | None, typer.Option("--token", metavar="TOKEN", help="The token to show it (better: BATONPASS_TOKEN).")
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", parser=folder_named, help="The data folder of a running `up` (BATONPASS_DATA)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Patience = Annotated[
    float | None,
    typer.Option(
        "--patience",
        metavar="SPAN",
        envvar="BATONPASS_PATIENCE",
        parser=lambda text: span_ms(text) / 1_000 if text.strip() else None,
        help="How long to ask again while no coordinator can answer.",
    ),
]
COMMON: dict[str, tuple[Any, Any]] = {
    "url": (Url, None),
    "token": (Token, None),
    "folder": (Folder, None),
    "patience": (Patience, None),
    "as_json": (AsJson, False),
}
"""The options that every command has: their Typer declarations and defaults."""

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]
MemberName = Annotated[
    str,
    typer.Argument(
        metavar="MEMBER", help="The member: its id, the beginning of it, or its instance id.", show_default=False
    ),
]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The task, as in 0_3.", show_default=False)]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.")]


class _Client(CoordinatorClient):
    def note(self, method: str, path: str, reply: Reply) -> None:
        super().note(method, path, reply)
        CLOCK.set_by(reply.headers)


class ClientContext:
    """A coordinator to call, found on the first call, and a way to print."""

    def __init__(self, reach: Callable[[], CoordinatorClient], *, as_json: bool) -> None:
        self._reach = reach
        self.as_json = as_json
        self.console = screen()

    @cached_property
    def client(self) -> CoordinatorClient:
        """The client of the coordinator.

        Raises:
            Failure: when it is not clear which coordinator is meant, or how to reach it.
        """
        return self._reach()

    def answer(self, body: Any) -> None:
        """Print a body as one line of JSON, for scripts."""
        say(json.dumps(body, separators=(",", ":")))

    def answered(self, body: Any) -> bool:
        """Print a body if scripts are to read it; return whether it was printed, so that people need no more."""
        if self.as_json:
            self.answer(body)
        return self.as_json

    async def get(self, place: str, **query: Any) -> Any:
        """Return the answer to a GET, for people; with --json it is printed, and the command is over."""
        body = await self.client.get(place, **query)
        if self.answered(body):
            raise typer.Exit
        return body

    def say(self, sentence: str) -> None:
        """Print a sentence for people, unchanged."""
        self.console.say(sentence)

    def note(self, kind: str, sentence: str, **said: Any) -> None:
        """Print on standard error what is neither part of the answer nor the end of the command."""
        say_on_stderr(
            json.dumps({"type": kind, "detail": sentence, **said}) if self.as_json else f"batonpass: {sentence}"
        )

    def done(self, sentence: str, **said: Any) -> None:
        """Report that a command was carried out."""
        if not self.answered({"done": True, **said}):
            self.say(sentence)

    def table(self, *columns: str, rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
        self.console.print(table(*columns, rows=rows, title=title))

    async def member_of(self, group: str, name: str, *, may_be_gone: bool = False) -> str:
        """Return the id of a member that is named by its id, its instance id, or the beginning of its id.

        With ``may_be_gone`` it is the name itself where there is none: the coordinator knows it.

        Raises:
            Failure: when no member or more than one has this name.
        """
        members = await self.client.pages(path("groups", group, "members"), "members")
        ids = [str(one["member_id"]) for one in members]
        if name in ids:
            return name
        found = [str(one["member_id"]) for one in members if one.get("instance_id") == name]
        found = found or [one for one in ids if name and one.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise Failure(Exit.BAD_INPUT, f"{name} may mean any of {', '.join(sorted(found))}.", todo="Say more of it.")
        if may_be_gone:
            return name
        known = ", ".join(sorted(map(name_of, members))[:NAMED_MAX])
        known += f" and {len(members) - NAMED_MAX} more" if len(members) > NAMED_MAX else ""
        raise Failure(
            Exit.NOT_THERE,
            f"group {group} has no member {name}.",
            todo=f"Its members are {known}." if known else "It has no members.",
            problem={"type": "unknown-member", "title": "unknown member", "status": 404, "action": "fix"},
        )


def client_command(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turn a coroutine of a context into a command with the options that all commands have."""

    @functools.wraps(command)
    def carry_out(
        *,
        url: str | None,
        token: str | None,
        folder: Path | None,
        patience: float | None,
        as_json: bool,
        **given: Any,
    ) -> None:
        def reach() -> CoordinatorClient:
            urls, shown_token = find(url, token, folder)
            return _Client(urls, shown_token, patience_s=patience, trusted=trusted())

        async def work() -> None:
            context = ClientContext(reach, as_json=as_json)
            try:
                await command(context, **given)
            except UNREADABLE as error:
                raise context.client.unread(error) if "client" in vars(context) else error from None
            finally:
                if "client" in vars(context):
                    await context.client.close()

        with failing_well(as_json=as_json):
            asyncio.run(work())

    own = [one for name, one in inspect.signature(command).parameters.items() if name != "context"]
    _offer(carry_out, own)
    return carry_out


def _offer(command: Callable[..., None], own: Iterable[inspect.Parameter]) -> None:
    """Make Typer, which reads the signature, offer the common options after a command's own."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [one.replace(kind=kind) for one in own]
    parameters += [inspect.Parameter(name, kind, annotation=of, default=one) for name, (of, one) in COMMON.items()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}


def listing(app: typer.Typer, command: Callable[..., None]) -> None:
    """Make a group of commands run this one if none is named, with the same options."""

    def carry_out(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            command(**given)
        # Compared by name, because typer may bring its own copy of click.
        elif any(getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE" for name in given):
            # The named command would not get these options.
            message = f"write options after the command: {context.info_name} {context.invoked_subcommand} ..."
            raise typer.BadParameter(message)

    _offer(carry_out, [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)])
    app.callback(invoke_without_command=True)(carry_out)


def tell(sentence: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a sentence for people, or a body as a line of JSON for scripts."""
    say(json.dumps(body) if as_json else sentence)


@contextmanager
def failing_well(*, as_json: bool) -> Iterator[None]:
    """Turn failures within the block into their sentence and exit code."""
    try:
        yield
    except ApiError as error:
        failure = failure_of(error)
    except Failure as error:
        failure = error
    except UnicodeEncodeError:
        # The shell's bytes that are no UTF-8 come as lone surrogates, which nothing can be sent with.
        failure = Failure(Exit.BAD_INPUT, "a name or a text that was given is not UTF-8.")
    except OSError as error:
        if error.filename is None:
            raise
        failure = Failure(Exit.BAD_INPUT, f"{error.filename}: {error.strerror}.")
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    else:
        return
    failure.show(as_json=as_json)
    raise typer.Exit(failure.code)


def failure_of(error: ApiError) -> Failure:
    """Return the failure of a command for a call that failed."""
    if isinstance(error, Refused):
        is_down = error.status >= 500
        code = BY_STATUS.get(error.status, Exit.UNREACHABLE if is_down else Exit.REFUSED)
        problem, (todo, runbook) = error.problem, REFUSALS.get(error.kind, Refusal(""))
        todo += f" Runbook: docs/runbooks/{runbook}.md." if runbook else ""
        if isinstance(error.problem.get("retry_after_ms"), int):
            todo = f"{todo} It says to wait {error.again_s:.1f} s.".strip()
    else:
        # What a proxy answers whose coordinator is away passes.
        is_other = isinstance(error, Foreign) and not error.is_passing
        code, problem, todo = Exit.UNREACHABLE, {}, TO_READ_IT if is_other else TO_REACH_ONE
        todo = TO_TRUST_IT if isinstance(error, Untrusted) else todo
    if error.is_passing and error.asked_for_s >= AGAIN_S:
        todo += f" It was asked for {duration(error.asked_for_s * 1_000)}; --patience changes how long."
    # What a caller of the API would send, a reader of this command would not.
    said, of_the_api, _ = str(error).partition("; declare it with PUT")
    return Failure(code, f"{said}." if of_the_api else said, todo=todo, problem=problem)


def trusted() -> ssl.SSLContext:
    """Return the authorities to trust and the certificate to show, from the environment.

    Raises:
        Failure: when one of these files cannot be used.
    """
    with failing_as(Exit.BAD_INPUT, ValueError):
        return trusted_by_environment()


def find(url: str | None, token: str | None, folder: Path | None) -> tuple[str, str | None]:
    """Return where the coordinators are and the token for them: as given, from the environment, or of a running `up`.

    The token of a data folder is sent only to the `up` that runs on that folder.

    Raises:
        Failure: when several run and none is named, when the named one does not run, when what is named is no URL, or
            when there is a token and no coordinator that it is for.
    """
    url = url or variable("BATONPASS_URL")
    token = (token or "").strip() or variable("BATONPASS_TOKEN")
    if token:
        check_token(token)
    if url:
        _check_urls(url)
    if url and token:
        return url, token
    here = running_on(folder)
    if url:
        fitting = [one for one in here if [one.url] == urls_in(url)]
        return url, _token_of(fitting[0]) if fitting else None
    if len(here) > 1:
        listed = ", ".join(f"{one.url} ({one.folder})" for one in here)
        raise Failure(
            Exit.BAD_INPUT,
            f"several coordinators run on this machine: {listed}.",
            todo="Choose one with --data or --url.",
        )
    if not here:
        if token:
            # Anybody on this machine may listen at the address that commands try without one.
            what = "no coordinator is named, and a token is shown to none but that."
            raise Failure(Exit.BAD_INPUT, what, todo="Name it with --url or BATONPASS_URL.")
        return DEFAULT_URL, None
    return here[0].url, token or _token_of(here[0])


def check_token(token: str) -> None:
    """Refuse a token that cannot be sent.

    Raises:
        Failure: which does not tell it.
    """
    with failing_as(Exit.BAD_INPUT, ValueError, todo="Copy it again, whole and alone."):
        sendable(token)


def _check_urls(text: str) -> None:
    todo = f"It looks like {DEFAULT_URL}; several stand with commas between them."
    with failing_as(Exit.BAD_INPUT, ValueError, todo=todo):
        urls = urls_in(text)
    with failing_as(Exit.BAD_INPUT, ValueError):
        for url in urls:
            proxy_for(url)


def running_on(folder: Path | None = None) -> list[Running]:
    """Return the `up` on a folder, or on that of BATONPASS_DATA; if neither is named, all that commands find here.

    Raises:
        Failure: when none runs on the named one.
    """
    data = variable("BATONPASS_DATA")
    folder = folder or (Path(data) if data else None)
    if folder is None:
        return running_here()
    found = UpFolder(folder).running()
    if found is None or not found.url:
        raise Failure(
            Exit.UNREACHABLE,
            f"no `batonpass up` runs on {folder}.",
            todo=f"Start it with `batonpass up --data {folder}`.",
        )
    return [found]


def _token_of(running: Running) -> str | None:
    try:
        return read_private(UpFolder(running.folder).token_file).strip() or None
    except OSError:
        # It is of another user, who runs the coordinator: that will answer that a token is missing.
        return None
