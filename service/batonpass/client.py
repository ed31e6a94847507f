"""The coordinators' REST interface for clients other than workers: commands, the dashboard, the demonstration.

If a coordinator cannot answer, the next one is asked. If none can answer now, a call that only reads is repeated for a
while. A call that changes something goes to the next one only if nothing of it was sent, and is not repeated, unless
the caller says that doing it twice does no harm.
"""

import asyncio
import json
import os
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

import httpx2 as httpx

from batonpass import __version__
from batonpass.http_clients import authorities, by_proxy, http_client, tls_context, url_of
from batonpass.schemas.shapes import faults
from batonpass.variables import variable

PATIENCE_S: Final = 10.0
"""How long a read is repeated while coordinators say that they cannot answer now, unless the caller says how long."""

AGAIN_S: Final = 0.5
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
SILENCE_S: Final = 45.0
"""How long a stream of events may be silent; it sends a keep-alive at least every 15 s."""

REOPEN_AFTER_S: Final = (0.5, 1.0, 2.0, 5.0)
REOPEN_MAX_S: Final = 10.0
"""After how long a broken stream is opened again: by failures in a row, and at most if a coordinator says how long."""

WAIT_MAX_MS: Final = 86_400_000
"""The longest that an answer may ask to wait: what stands there need not be from a coordinator."""

TO_TRUST_IT: Final = (
    "Name a file with its authorities in BATONPASS_CA_FILE, or give it a certificate for this name and time."
)

ENDED: Final = "Server disconnected without sending a response"
"""How the library says that a connection ended before any of an answer came."""

PAGE: Final = 1_000
NO_ANSWER: Final = (httpx.HTTPError, ssl.SSLError)
"""What is raised when no answer comes. The library does not wrap TLS errors after the connection was made."""

_SENDABLE: Final = re.compile(r"[\x20-\x7e]*")

_NO_ATTRIBUTE: Final = re.compile(r"has no attribute '(\w+)'$")
"""How a template says that a field is missing."""

UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What is raised by whoever reads an answer in which something else stands than there should."""

ANSWERS_KEPT: Final = 16
"""How many answers are looked at again when one could not be read."""

NOT_NOW: Final = frozenset({429, 502, 503, 504})
"""The statuses of a coordinator, or of a proxy in front of it, that cannot answer now."""


class ApiError(Exception):
    """A call failed; the message is a sentence.

    ``is_passing``: the call may succeed after ``again_s``. ``is_absent``: nothing was sent to any coordinator.
    ``asked_for_s`` is for how long the call was repeated.
    """

    def __init__(self, sentence: str, *, is_passing: bool, is_absent: bool = False, again_s: float = AGAIN_S) -> None:
        super().__init__(sentence)
        self.is_passing = is_passing
        self.is_absent = is_absent
        self.again_s = again_s
        self.asked_for_s = 0.0


class Unreachable(ApiError):
    """No coordinator answers, or it broke off, or what answers is not a coordinator."""


class Untrusted(Unreachable):
    """The certificate of what answers is none that is trusted here."""


class Foreign(Unreachable):
    """What answers is not a coordinator, or one of another version."""


class _NoField(Foreign, LookupError):
    """An answer lacks a field; a template may ask whether it is there."""


class Refused(ApiError):
    """The coordinator answered with a problem (RFC 9457), which ``kind`` names."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        detail = str(problem.get("detail") or "").strip() or str(problem.get("title", "refused"))
        wait_ms = problem.get("retry_after_ms")
        super().__init__(
            detail if detail[-1:] in ".!?" else f"{detail}.",
            is_passing=status in NOT_NOW,
            again_s=max(min(wait_ms, WAIT_MAX_MS) / 1_000, AGAIN_S / 10) if isinstance(wait_ms, int) else AGAIN_S,
        )
        self.status = status
        self.problem = dict(problem)
        self.kind = str(problem.get("type", ""))


class Reply(NamedTuple):
    """An answer that is not an error."""

    status: int
    body: Any
    headers: Mapping[str, str]


class _Body(dict[str, Any]):
    """The fields of an answer.

    One that every coordinator gives and this answer does not, or in another form, shows that it is none's. Of the
    objects in it ``CoordinatorClient.unread`` says that: there are too many of them to be wrapped.
    """

    def __init__(self, fields: Mapping[str, Any], foreign: Foreign) -> None:
        super().__init__(fields)
        self._foreign = foreign

    def __missing__(self, field: str) -> Any:
        raise self._foreign

    def page(self, field: str, begin: str) -> tuple[list[dict[str, Any]], str | None]:
        """Return the entries of the page from ``begin`` on, and where the next one begins; None if it is the last."""
        found, after = self[field], self.get("next")
        is_list = isinstance(found, list) and all(isinstance(one, dict) for one in found)
        if not is_list or (after is not None and (not isinstance(after, str) or after == begin)):
            raise self._foreign
        return found, after


class CoordinatorClient:
    """The coordinators under their base URLs, and the token for calls that do not name another.

    ``patience_s`` is how long a read is repeated while none of them can answer. None means `PATIENCE_S` if a
    coordinator says that it cannot answer, or breaks off. If none was ever reached, nothing is repeated: a wrong URL
    fails at once.
    """

    def __init__(
        self,
        urls: str,
        token: str | None = None,
        *,
        patience_s: float | None = None,
        trusted: ssl.SSLContext | bool = True,
        agent: str = "batonpass",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Connect on first use. Several URLs are separated by commas.

        Raises:
            ValueError: when one of them is no URL, the token cannot be sent, or the proxy or the authorities that the
                environment names cannot be used.
        """
        self.patience_s = patience_s
        self._token = sendable(token) if token else token
        self._at = 0
        self._answers = deque[tuple[str, str, str, Reply]](maxlen=ANSWERS_KEPT)
        self._urls = urls_in(urls)
        self._places = [f"{url}{by_proxy(url)}" for url in self._urls]
        self._clients = [
            http_client(
                [url],
                verify=trusted,
                transport=transport,
                base_url=url,
                headers={"user-agent": f"{agent}/{__version__}", "accept": "application/json"},
            )
            for url in self._urls
        ]

    @property
    def url(self) -> str:
        """The coordinator that is asked next."""
        return self._urls[self._at]

    async def __aenter__(self) -> Self:
        """Return this client; nothing is sent before the first call."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def call(  # noqa: PLR0913 - each says something else of the call, and all but two are left out
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        lasting_s: float = 0.0,
        is_repeatable: bool | None = None,
    ) -> Reply:
        """Make a call below ``/v1`` and return the answer, which may take ``lasting_s`` longer than usual.

        ``is_repeatable``: doing it twice does no harm; left out, only a GET is repeatable.

        Raises:
            Unreachable: when no coordinator answers.
            Refused: when the call is refused.
        """
        may_repeat = method == "GET" if is_repeatable is None else is_repeatable
        try:
            json.dumps(body, allow_nan=False)
        except ValueError:
            said = "a number of the body is NaN or infinite, which JSON has no form for"
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, {"type": "invalid-request", "detail": said}) from None

        async def ask(client: httpx.AsyncClient) -> Reply:
            answer = await client.request(
                method,
                f"/v1{path}",
                params={name: value for name, value in (query or {}).items() if value is not None and value != ""},
                json=body,
                headers=self._shown(token) | dict(headers or {}),
                timeout=httpx.Timeout(ANSWER_TIMEOUT_S + lasting_s, connect=CONNECT_TIMEOUT_S),
            )
            reply = Reply(answer.status_code, self._read(answer), answer.headers)
            self.note(method, path, reply)
            return reply

        began = time.monotonic()
        patience_s, was_there = (PATIENCE_S, False) if self.patience_s is None else (self.patience_s, True)
        while True:
            try:
                return await self._ask_around(ask, may_repeat=may_repeat)
            except ApiError as error:
                if not may_repeat or not error.is_passing:
                    raise
                was_there = was_there or not error.is_absent
                error.asked_for_s = time.monotonic() - began
                if not was_there or error.asked_for_s + error.again_s > patience_s:
                    raise
                await asyncio.sleep(error.again_s)

    async def get(self, path: str, *, token: str | None = None, **query: Any) -> Any:
        return (await self.call("GET", path, query=query, token=token)).body

    async def pages(self, path: str, name: str, *, get: Callable[..., Awaitable[Any]] | None = None) -> list[Any]:
        """Return the entries of a list that comes in pages; ``get`` asks for one in another way than ``get`` here."""
        found: list[Any] = []
        after: Any = ""
        while after is not None:
            page = await (get or self.get)(path, limit=PAGE, after=after)
            entries, after = page.page(name, after)
            found += entries
        return found

    async def declare(
        self, group: str, body: Any, *, query: Mapping[str, Any] | None = None, is_repeatable: bool = False
    ) -> Reply:
        """Declare a group, or change the existing one to what is declared."""
        place = path("groups", group)
        try:
            return await self.call("PUT", place, query=query, body=body, is_repeatable=is_repeatable)
        except Refused as refused:
            if refused.kind != "precondition-required":
                raise
        headers = {"if-match": (await self.call("GET", place)).headers["etag"]}
        return await self.call("PUT", place, query=query, body=body, headers=headers, is_repeatable=is_repeatable)

    def note(self, method: str, path: str, reply: Reply) -> None:
        """Keep an answer for a while, in case that it cannot be read."""
        self._answers.append((self.url, method, path, reply))

    def unread(self, error: Exception) -> Exception:
        """Return why answers could not be read: the place in one of the last that is not as its schema says.

        So is a field that the error names and that is missing there. If all of them are as they should be, that is the
        error itself: a mistake of whoever reads them.
        """
        missed = str(error.args[0]) if isinstance(error, KeyError) and error.args else ""
        if named := _NO_ATTRIBUTE.search(str(error)):
            missed = named[1]
        for url, method, path, reply in reversed(self._answers):
            for place in faults(method, f"/v1{path}", reply.body, missed):
                where = f": {place} in the answer to {method} {path}"
                return Foreign(_foreign_words(url, reply.status, where), is_passing=False)
        return error

    def follow(self, path: str, *, token: str | None = None) -> "EventFeed":
        """Return the events of a path that happen from now on."""
        return EventFeed(self, path, token)

    @asynccontextmanager
    async def stream(
        self, path: str, *, after: str, token: str | None = None
    ) -> AsyncIterator[AsyncIterator[httpx.ServerSentEvent]]:
        """Lend a stream of events, from ``after`` on if that is not empty.

        It is asked for once; after a break, the next call asks the next coordinator.

        Raises:
            Unreachable: when no coordinator answers, when nothing comes for `SILENCE_S`, or when it breaks.
            Refused: when it is refused.
        """
        resumed = {"last-event-id": after} if after else {}
        headers = self._shown(token) | {"accept": "text/event-stream"} | resumed
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        with self._asking() as client:
            async with client.stream("GET", f"/v1{path}", headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    self._read(answer)
                yield aiter(httpx.EventSource(answer, max_event_size=None))

    def _shown(self, token: str | None) -> dict[str, str]:
        shown = self._token if token is None else token
        return {"authorization": f"Bearer {shown}"} if shown else {}

    async def _ask_around(self, ask: Callable[[httpx.AsyncClient], Awaitable[Reply]], *, may_repeat: bool) -> Reply:
        """Ask one coordinator, and if that cannot answer the next one, each once."""
        left = len(self._urls)
        while True:
            left -= 1
            try:
                with self._asking() as client:
                    return await ask(client)
            except ApiError as error:
                is_final = isinstance(error, Refused) and not error.is_passing
                if is_final or not left or not (may_repeat or error.is_absent):
                    raise

    @contextmanager
    def _asking(self) -> Iterator[httpx.AsyncClient]:
        """Lend the client of the coordinator to ask; if that cannot answer, the next one is asked from then on."""
        at = self._at
        try:
            try:
                yield self._clients[at]
            except NO_ANSWER as error:
                raise _unreachable(self._places[at], error) from None
        except ApiError as error:
            if self._at == at and (error.is_passing or isinstance(error, Unreachable)):
                self._at = (at + 1) % len(self._urls)
            raise

    def _read(self, answer: httpx.Response) -> Any:
        foreign = self._foreign(answer, _NoField)
        try:
            body = answer.json() if answer.content else None
        except (ValueError, RecursionError):
            raise self._foreign(answer) from None
        if answer.is_success:
            if body is None and answer.status_code == HTTPStatus.NO_CONTENT:
                return None
            if not isinstance(body, dict):
                raise self._foreign(answer)
            return _Body(body, foreign)
        if not isinstance(body, dict) or "detail" not in body:
            raise self._foreign(answer)
        raise Refused(answer.status_code, body)

    def _foreign(self, answer: httpx.Response, kind: type[Foreign] = Foreign) -> Foreign:
        leads_to = answer.headers.get("location") if answer.is_redirect else None
        where = f": it leads to {leads_to.partition('?')[0]}" if leads_to else ""
        words = _foreign_words(self._places[self._at], answer.status_code, where)
        return kind(words, is_passing=answer.status_code in NOT_NOW)


class EventFeed:
    """Events as they happen, each once: an endless stream that is resumed where it broke off.

    ``position`` is that of the last event. It yields an event; None when the stream was opened or has sent a
    keep-alive; or the error that broke the stream, which is opened again if the caller goes on iterating.
    """

    def __init__(self, client: CoordinatorClient, path: str, token: str | None) -> None:
        self.position = ""
        self._client = client
        self._path = path
        self._token = token

    async def __aiter__(self) -> AsyncIterator[dict[str, Any] | ApiError | None]:
        """Open the stream, and go on."""
        failures = 0
        while True:
            error: ApiError
            try:
                async with self._client.stream(self._path, after=self.position, token=self._token) as frames:
                    yield None
                    async for frame in frames:
                        failures = 0
                        self.position = frame.id or self.position
                        event = _event_of(frame)
                        if event is not None:
                            self._client.note("GET", "/events", Reply(HTTPStatus.OK, {"events": [event]}, {}))
                        yield event
                sentence = f"the coordinator at {self._client.url} ended the stream of events."
                error = Unreachable(sentence, is_passing=True)
            except ApiError as caught:
                error = caught
            yield error
            wait_s = REOPEN_AFTER_S[min(failures, len(REOPEN_AFTER_S) - 1)]
            await asyncio.sleep(min(max(wait_s, error.again_s), REOPEN_MAX_S))
            failures += 1


def _event_of(frame: httpx.ServerSentEvent) -> dict[str, Any] | None:
    """Return the event of a frame. A frame with a type (events are missing) becomes an event of that type."""
    if not frame.data:
        return None
    try:
        body: dict[str, Any] = json.loads(frame.data)
    except (ValueError, RecursionError):
        raise Foreign("an event of the stream is not in a coordinator's words.", is_passing=False) from None
    # A frame without a type is a message.
    return body if frame.event == "message" else {"type": frame.event, "body": body}


def trusted_by_environment() -> ssl.SSLContext:
    """Return the trusted authorities and the own certificate, by BATONPASS_CA_FILE, ..._CERT_FILE and ..._KEY_FILE.

    Raises:
        ValueError: when one of these files cannot be used.
    """
    ca, own, key = (variable(f"BATONPASS_{name}_FILE") for name in ("CA", "CERT", "KEY"))
    if ca is None and own is None:
        return authorities()
    try:
        return tls_context(ca, own, key)
    except (OSError, ValueError) as error:
        message = f"BATONPASS_CA_FILE, BATONPASS_CERT_FILE or BATONPASS_KEY_FILE cannot be used: {error}"
        raise ValueError(message) from None


def urls_in(text: str) -> list[str]:
    """Return the base URLs that a text names, with commas between them.

    Raises:
        ValueError: when one of them cannot be the URL of a coordinator, or there is none.
    """
    urls = [url for part in text.split(",") if (url := part.strip().rstrip("/"))] or [text]
    for number, url in enumerate(urls, 1):
        # It is not told: a password may be in it, or it may be a token in the wrong place.
        which = "what was given" if len(urls) == 1 else f"number {number} of what was given"
        parsed, why = url_of(url), ""
        if parsed is None or parsed.scheme not in {"http", "https"}:
            why = ", as http://127.0.0.1:8420 is"
        elif parsed.userinfo:
            why = ": it has a user or a password before its @, and a coordinator takes a token (BATONPASS_TOKEN)"
        elif {"?", "#"} & set(url):
            why = ": it has a ? or # in it, and paths of calls are put behind it"
        if why:
            raise ValueError(f"{which} is not the URL of a coordinator{why}")
    return urls


def sendable(token: str) -> str:
    """Return a token that can be sent.

    Raises:
        ValueError: when it has a character that no header takes; it is not told.
    """
    if not _SENDABLE.fullmatch(token):
        raise ValueError("the token has a line break or another character in it that no header takes")
    return token


def _foreign_words(url: str, status: int, where: str = "") -> str:
    return (
        f"{url} answered {status} in words that are not a coordinator's, or not those of version {__version__}{where}."
    )


def _unreachable(place: str, error: httpx.HTTPError | ssl.SSLError) -> Unreachable:
    """Return the error of a call that was not answered."""
    is_absent = False
    root = _root_of(error)
    said = _words_of(root) or type(error).__name__
    match error:
        case httpx.ConnectError() if isinstance(root, ssl.SSLCertVerificationError):
            # Waiting does not help.
            return Untrusted(f"{place} is not trusted ({said}).", is_passing=False, is_absent=True)
        case httpx.ConnectError() | httpx.ConnectTimeout():
            sentence = f"no coordinator answers at {place} ({said})."
            is_absent = True
        case httpx.TimeoutException():
            sentence = f"the coordinator at {place} did not answer in time; what was asked may have been done."
        case _:
            what = str(error) or type(error).__name__
            sentence = f"the coordinator at {place} broke off ({what}); what was asked may be done."
            if what.startswith(ENDED):
                sentence += " One that wants HTTPS, or a certificate of its callers (BATONPASS_CERT_FILE), ends all so."
    return Unreachable(sentence, is_passing=True, is_absent=is_absent)


def _root_of(error: BaseException) -> BaseException:
    """Return the system's own error for a connection that failed; the libraries in between only pass it on."""
    while (before := error.__cause__ or error.__context__) is not None:
        # The name stands for several addresses: take the error of the first.
        error = before.exceptions[0] if isinstance(before, BaseExceptionGroup) else before
    return error


def _words_of(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    words = str(error)
    return words.partition("] ")[2] or words


def path(*names: str) -> str:
    """Return a path below ``/v1`` whose parts are names, quoted as paths need it."""
    # A name of dots alone would be taken for a step in the path, so its dots are quoted as well.
    return "".join(f"/{quote(name, safe='') if name.strip('.') else name.replace('.', '%2E')}" for name in names)


def instant(text: str | None) -> datetime | None:
    """Return the time that an answer names (RFC 3339); None if it names none."""
    return datetime.fromisoformat(text) if text else None
