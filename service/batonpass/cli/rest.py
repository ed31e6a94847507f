"""The coordinator's REST interface as the commands use it: one call at a time, every failure with its exit code."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import httpx

from batonpass import __version__
from batonpass.cli.exits import Exit, Failure

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
PAGE = 500
HERE = frozenset({"127.0.0.1", "::1", "localhost", "0.0.0.0", "::"})  # noqa: S104 - a name, nothing is bound to it

# What to do about a problem, by its type; where nothing is said, the coordinator's own detail says it.
REMEDIES = {
    "unauthenticated": "Give a token: --token, BATONPASS_TOKEN, or --data with the folder of a running `batonpass up`.",
    "forbidden": "Use a token of a higher role; `batonpass token create` makes one, for an admin.",
    "unknown-group": "`batonpass groups` lists the groups, `batonpass groups declare` makes one.",
    "unknown-member": "`batonpass members GROUP` lists the members.",
    "group-not-empty": "Stop its members first, or delete it with --force: their tasks then stop at once.",
    "not-safe-to-stop": "`batonpass drain GROUP MEMBER --wait` hands its tasks over first.",
    "precondition-failed": "Somebody changed the group in between: look at it, and ask again.",
    "store-unavailable": "Ask again in a moment; workers keep what they have meanwhile.",
    "coordinator-loading": "Ask again in a moment; workers keep what they have meanwhile.",
}
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


class Reply(NamedTuple):
    """An answer that is not an error."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Coordinator:
    """A coordinator under its base URL, and the token that is shown to it."""

    def __init__(self, url: str, token: str | None, *, transport: httpx.BaseTransport | None = None) -> None:
        """Connect on first use.

        Raises:
            Failure: when this is no URL.
        """
        headers = {"user-agent": f"batonpass/{__version__}", "accept": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self.url = url.rstrip("/")
        if not is_url(self.url):
            raise Failure(
                Exit.BAD_INPUT, f"{url!r} is not the URL of a coordinator.", todo="It looks like http://127.0.0.1:8420."
            )
        # What runs on this very machine is never behind a proxy, whatever the environment says of others.
        is_here = httpx.URL(self.url).host in HERE
        self._client = httpx.Client(
            base_url=self.url, headers=headers, transport=transport, verify=trusted(), trust_env=not is_here
        )

    def __enter__(self) -> Self:
        """Use it for one command."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        self._client.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        patience_s: float = 0.0,
    ) -> Reply:
        """Ask for something below ``/v1`` and return the answer, waiting ``patience_s`` longer than usual for it.

        Raises:
            Failure: when nobody answers, or when what is asked is refused.
        """
        given = {name: value for name, value in (query or {}).items() if value not in {None, ""}}
        try:
            answer = self._client.request(
                method,
                f"/v1{path}",
                params=given or None,
                json=body,
                headers=dict(headers or {}),
                timeout=httpx.Timeout(ANSWER_TIMEOUT_S + patience_s, connect=CONNECT_TIMEOUT_S),
            )
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from None
        return Reply(answer.status_code, self._read(answer), answer.headers)

    def get(self, path: str, **query: Any) -> Any:
        """Return the body of what stands under a path."""
        return self.call("GET", path, query=query).body

    @contextmanager
    def lines(self, path: str, *, headers: Mapping[str, str], silence_s: float) -> Iterator[Iterator[str]]:
        """Lend the lines of an answer that goes on; it is broken when nothing comes for ``silence_s``.

        Raises:
            Failure: when nobody answers, when it is refused, or when it breaks.
        """
        timeout = httpx.Timeout(silence_s, connect=CONNECT_TIMEOUT_S)
        try:
            with self._client.stream("GET", f"/v1{path}", headers=dict(headers), timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    self._read(answer)
                yield answer.iter_lines()
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from None

    def pages(self, path: str, name: str) -> Iterator[Any]:
        """Yield the entries of a list that comes in pages."""
        after: Any = ""
        while after is not None:
            page = self.get(path, limit=PAGE, after=after)
            yield from page[name]
            after = page.get("next")

    def _read(self, answer: httpx.Response) -> Any:
        if answer.status_code == httpx.codes.NO_CONTENT or not answer.content:
            body = None
        else:
            try:
                body = answer.json()
            except ValueError:
                raise self._foreign(answer) from None
        if answer.is_success:
            return body
        if not isinstance(body, dict) or "detail" not in body:
            raise self._foreign(answer)
        raise refused(answer.status_code, body)

    def _foreign(self, answer: httpx.Response) -> Failure:
        return Failure(
            Exit.UNREACHABLE,
            f"{self.url} answered {answer.status_code} in words that are not a coordinator's.",
            todo="Look whether the URL is right, and what stands in between.",
        )


def trusted() -> ssl.SSLContext | bool:
    """Return whose certificates are believed, and the one that is shown, as the environment says.

    Raises:
        Failure: when a file of these cannot be used.
    """
    authorities, own, key = (os.environ.get(f"BATONPASS_{name}_FILE") or None for name in ("CA", "CERT", "KEY"))
    if authorities is None and own is None:
        return True
    try:
        context = ssl.create_default_context(cafile=authorities)
        if own is not None:
            context.load_cert_chain(own, key)
    except (OSError, ssl.SSLError) as error:
        raise Failure(
            Exit.BAD_INPUT, f"BATONPASS_CA_FILE, BATONPASS_CERT_FILE or BATONPASS_KEY_FILE cannot be used: {error}."
        ) from None
    return context


def is_url(text: str) -> bool:
    """Whether a text is the URL of something that may be a coordinator."""
    try:
        parsed = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        return False
    return parsed.scheme in {"http", "https"} and bool(parsed.host)


def unreachable(url: str, error: httpx.HTTPError) -> Failure:
    """Return the failure of a call that was not answered."""
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            said = f"no coordinator answers at {url}"
            reason = str(error).removeprefix("[Errno ").partition("] ")
            said += f" ({reason[2] or reason[0] or type(error).__name__})."
        case httpx.TimeoutException():
            said = f"the coordinator at {url} did not answer in time; what was asked may have been done."
        case _:
            said = f"the coordinator at {url} broke off ({str(error) or type(error).__name__}); what was asked may be done."
    todo = "Start one with `batonpass up`, or say where it is with --url or BATONPASS_URL."
    return Failure(Exit.UNREACHABLE, said, todo=todo)


def refused(status: int, problem: Mapping[str, Any]) -> Failure:
    """Return the failure that a problem of the coordinator is (RFC 9457)."""
    code = BY_STATUS.get(status, Exit.UNREACHABLE if status >= httpx.codes.INTERNAL_SERVER_ERROR else Exit.REFUSED)
    detail = str(problem["detail"]).strip() or str(problem.get("title", "refused"))
    wait_ms = problem.get("retry_after_ms")
    todo = REMEDIES.get(str(problem.get("type")), "")
    if isinstance(wait_ms, int):
        todo = f"{todo} It says to wait {wait_ms / 1_000:.1f} s.".strip()
    return Failure(code, detail if detail[-1:] in ".!?" else f"{detail}.", todo=todo, problem=problem)


def path(*names: str) -> str:
    """Return a path below ``/v1`` whose parts are names, quoted as paths need it."""
    return "".join(f"/{quote(name, safe='')}" for name in names)
