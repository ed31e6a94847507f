"""The coordinators' REST interface as the commands use it: one call at a time, every failure with its exit code.

Several coordinators are asked in turn: the next one where one is not there. What only looks is asked again for a while
where none can answer now; what changes something never is, unless nothing of it was sent.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import httpx

from batonpass import __version__
from batonpass.cli.exits import Exit, Failure
from batonpass.cli.spans import span

PATIENCE_S = 10.0
"""How long a look is repeated where coordinators say that they cannot answer now, and nobody said how long."""

AGAIN_S = 0.5
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
}


NOT_NOW = frozenset({429, 502, 503, 504})
"""What a coordinator, or what stands in front of it, answers while it cannot answer."""


class Away(Failure):
    """No coordinator can answer now. Asking again in ``again_s`` may help; ``is_absent``: nothing was sent to any."""

    def __init__(
        self,
        sentence: str,
        *,
        todo: str,
        again_s: float = AGAIN_S,
        is_absent: bool = False,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(Exit.UNREACHABLE, sentence, todo=todo, problem=problem)
        self.again_s = again_s
        self.is_absent = is_absent


class Reply(NamedTuple):
    """An answer that is not an error."""

    status: int
    body: Any
    headers: Mapping[str, str]


class OperatorClient:
    """The coordinators under their base URLs, and the token that is shown to them.

    ``patience_s`` is how long a look is repeated where none of them can answer now. None is `PATIENCE_S` where one is
    there and says so, or breaks off, and not at all where none is there from the first: a wrong URL is told at once.
    """

    def __init__(
        self,
        urls: str,
        token: str | None,
        *,
        patience_s: float | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect on first use. Several URLs stand with commas between them.

        Raises:
            Failure: when one of them is no URL.
        """
        headers = {"user-agent": f"batonpass/{__version__}", "accept": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self.patience_s = patience_s
        self._at = 0
        self._urls = urls_in(urls)
        for url in self._urls:
            if not is_url(url):
                example = "It looks like http://127.0.0.1:8420; several stand with commas between them."
                raise Failure(Exit.BAD_INPUT, f"{url!r} is not the URL of a coordinator.", todo=example)
        trust = trusted()
        # What runs on this very machine is never behind a proxy, whatever the environment says of others.
        self._clients = [
            httpx.Client(
                base_url=url,
                headers=headers,
                transport=transport,
                verify=trust,
                trust_env=httpx.URL(url).host not in HERE,
            )
            for url in self._urls
        ]

    @property
    def url(self) -> str:
        """The coordinator that is asked next."""
        return self._urls[self._at]

    def __enter__(self) -> Self:
        """Use it for one command."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        for client in self._clients:
            client.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        lasting_s: float = 0.0,
    ) -> Reply:
        """Ask for something below ``/v1`` and return the answer, which may take ``lasting_s`` longer than usual.

        Raises:
            Failure: when nobody answers, or when what is asked is refused.
        """
        given = {name: value for name, value in (query or {}).items() if value not in {None, ""}}

        def ask(client: httpx.Client) -> Reply:
            answer = client.request(
                method,
                f"/v1{path}",
                params=given or None,
                json=body,
                headers=dict(headers or {}),
                timeout=httpx.Timeout(ANSWER_TIMEOUT_S + lasting_s, connect=CONNECT_TIMEOUT_S),
            )
            return Reply(answer.status_code, self._read(answer), answer.headers)

        if method == "GET":
            return self.insist(lambda: self._ask_around(ask, is_look=True))
        return self._ask_around(ask, is_look=False)

    def insist(self, call: Callable[[], Reply]) -> Reply:
        """Make a call that does no harm when it is made twice, again and again while no coordinator can answer now.

        Raises:
            Failure: when it is refused, or nobody answered for as long as there is patience.
        """
        patience_s = PATIENCE_S if self.patience_s is None else self.patience_s
        began = time.monotonic()
        was_there = self.patience_s is not None
        while True:
            try:
                return call()
            except Away as away:
                took_s = time.monotonic() - began
                was_there = was_there or not away.is_absent
                if not was_there:
                    raise
                if took_s + away.again_s > patience_s:
                    if took_s >= AGAIN_S:
                        away.todo += f" It was asked for {span(took_s * 1_000)}; --patience changes how long."
                    raise
                time.sleep(away.again_s)

    def get(self, path: str, **query: Any) -> Any:
        """Return the body of what stands under a path."""
        return self.call("GET", path, query=query).body

    @contextmanager
    def lines(self, path: str, *, headers: Mapping[str, str], silence_s: float) -> Iterator[Iterator[str]]:
        """Lend the lines of an answer that goes on; it is broken when nothing comes for ``silence_s``.

        It is asked for once; after a break, the next coordinator is asked.

        Raises:
            Failure: when nobody answers, when it is refused, or when it breaks.
        """
        timeout = httpx.Timeout(silence_s, connect=CONNECT_TIMEOUT_S)
        at = self._at
        try:
            with self._clients[at].stream("GET", f"/v1{path}", headers=dict(headers), timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    self._read(answer)
                yield answer.iter_lines()
        except httpx.HTTPError as error:
            self._leave(at)
            raise unreachable(self._urls[at], error) from None
        except Away:
            self._leave(at)
            raise

    def _ask_around(self, ask: Callable[[httpx.Client], Reply], *, is_look: bool) -> Reply:
        """Ask one coordinator, and where that cannot answer the next one, each once."""
        left = len(self._urls)
        while True:
            left -= 1
            at = self._at
            try:
                return ask(self._clients[at])
            except Away as found:
                away = found
            except httpx.HTTPError as error:
                away = unreachable(self._urls[at], error)
            self._leave(at)
            if not left or not (is_look or away.is_absent):
                raise away from None

    def _leave(self, at: int) -> None:
        """Ask the next coordinator from now on, unless that was done already."""
        if self._at == at:
            self._at = (at + 1) % len(self._urls)

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
        said = f"{self.url} answered {answer.status_code} in words that are not a coordinator's."
        todo = "Look whether the URL is right, and what stands in between."
        if answer.status_code in NOT_NOW:
            return Away(said, todo=todo)
        return Failure(Exit.UNREACHABLE, said, todo=todo)


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


def urls_in(text: str) -> list[str]:
    """Return the base URLs that a text names, with commas between them; the text itself where it names none."""
    return [one for part in text.split(",") if (one := part.strip().rstrip("/"))] or [text]


def is_url(text: str) -> bool:
    """Whether a text is the URL of something that may be a coordinator."""
    try:
        parsed = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        return False
    return parsed.scheme in {"http", "https"} and bool(parsed.host) and " " not in text


def unreachable(url: str, error: httpx.HTTPError) -> Away:
    """Return the failure of a call that was not answered."""
    is_absent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            said = f"no coordinator answers at {url}"
            reason = str(error).removeprefix("[Errno ").partition("] ")
            said += f" ({reason[2] or reason[0] or type(error).__name__})."
        case httpx.TimeoutException():
            said = f"the coordinator at {url} did not answer in time; what was asked may have been done."
        case _:
            said = f"the coordinator at {url} broke off ({str(error) or type(error).__name__}); what was asked may be done."
    todo = "Start one with `batonpass up`, say where it is with --url or BATONPASS_URL, or wait for it: --patience 30s."
    return Away(said, todo=todo, is_absent=is_absent)


def refused(status: int, problem: Mapping[str, Any]) -> Failure:
    """Return the failure that a problem of the coordinator is (RFC 9457)."""
    detail = str(problem["detail"]).strip() or str(problem.get("title", "refused"))
    said = detail if detail[-1:] in ".!?" else f"{detail}."
    wait_ms = problem.get("retry_after_ms")
    todo = REMEDIES.get(str(problem.get("type")), "")
    if isinstance(wait_ms, int):
        todo = f"{todo} It says to wait {wait_ms / 1_000:.1f} s.".strip()
    if status in NOT_NOW:
        again_s = wait_ms / 1_000 if isinstance(wait_ms, int) else AGAIN_S
        return Away(said, todo=todo, again_s=max(again_s, AGAIN_S / 10), problem=problem)
    code = BY_STATUS.get(status, Exit.UNREACHABLE if status >= httpx.codes.INTERNAL_SERVER_ERROR else Exit.REFUSED)
    return Failure(code, said, todo=todo, problem=problem)


def path(*names: str) -> str:
    """Return a path below ``/v1`` whose parts are names, quoted as paths need it."""
    # A name of nothing but dots is taken for a step in the path where it is not quoted as well.
    return "".join(f"/{quote(name, safe='') if name.strip('.') else name.replace('.', '%2E')}" for name in names)
