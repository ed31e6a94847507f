"""Declaring a group from the worker that knows its topology, or finding that it was declared with another one."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx2 as httpx

from batonpass.http_clients import http_client, json_object
from batonpass.worker.http_calls import base_urls
from batonpass.worker.options import Options

log = logging.getLogger("batonpass.worker")

PATIENCE_S: Final = 60.0
"""How long a start waits for a coordinator that answers; then the program ends, for what runs it to start it again."""

AGAIN_S: Final = 1.0
NOT_NOW: Final = frozenset({429, 502, 503, 504})


class NotDeclared(Exception):
    """The group is declared with another topology, or the coordinator refuses the declaration."""


async def declare(
    urls: Sequence[str],
    group: str,
    subtopologies: Sequence[Mapping[str, object]],
    config: Mapping[str, object],
    options: Options,
) -> None:
    """Declare the group if nobody has; ``config`` counts only then, because later it is the operators'.

    A worker of an older topology than the declared one (`Options.topology_epoch`) is not compared: it gets no tasks of
    what was changed since.

    Raises:
        NotDeclared: naming the fields that differ with both values, or what the coordinator said.
        ConnectionError: when no coordinator answers within `PATIENCE_S`.
        ValueError: when a URL is none.
    """
    bases = base_urls(urls)
    topology: dict[str, object] = {"subtopologies": list(subtopologies)}
    if options.topology_epoch is not None:
        topology["epoch"] = options.topology_epoch
    client = http_client(bases, verify=options.tls, headers=options.headers, transport=options.transport, timeout=10)
    async with client:
        calls = _Calls(client, [f"{base}/v1/groups/{quote(group, safe='')}" for base in bases], options)
        answer = await calls.ask("GET")
        if answer.status_code == 404:
            answer = await calls.ask("PUT", {"topology": topology, "config": dict(config)})
            if answer.status_code == 428:
                # Another worker was faster.
                answer = await calls.ask("GET")
            elif answer.is_success:
                log.info("declared group %s: %s", group, json.dumps(topology))
                return
    if not answer.is_success:
        raise NotDeclared(f"group {group} cannot be declared: {_why(answer)}")
    _compare(group, subtopologies, answer.json()["topology"], options.topology_epoch)


class _Calls:
    """Calls to the group's resource at one of several coordinators."""

    def __init__(self, client: httpx.AsyncClient, urls: Sequence[str], options: Options) -> None:
        self._client = client
        self._urls = urls
        token = options.token() if callable(options.token) else options.token
        self._headers = {"authorization": f"Bearer {token.strip()}"} if token else {}

    async def ask(self, method: str, body: object = None) -> httpx.Response:
        """Return the first answer of a coordinator that can answer now.

        Raises:
            ConnectionError: when none can for `PATIENCE_S`.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            why = ""
            for url in self._urls:
                try:
                    answer = await self._client.request(method, url, json=body, headers=self._headers)
                except httpx.TransportError as error:
                    why = f"{url}: {str(error) or repr(error)}"
                else:
                    if answer.status_code not in NOT_NOW:
                        return answer
                    why = f"{url}: {_why(answer)}"
            if time.monotonic() > until:
                raise ConnectionError(f"no coordinator has answered for {PATIENCE_S:.0f} s ({why})")
            log.warning("no coordinator answers (%s)", why)
            await asyncio.sleep(AGAIN_S)


def _why(answer: httpx.Response) -> str:
    problem = json_object(answer)
    return str(problem.get("detail") or problem.get("title") or f"status {answer.status_code}")


def _compare(
    group: str, mine: Sequence[Mapping[str, object]], declared: Mapping[str, Any], topology_epoch: int | None
) -> None:
    if topology_epoch is not None and topology_epoch < declared["epoch"]:
        return
    theirs: dict[object, Mapping[str, object]] = {part["id"]: part for part in declared["subtopologies"]}
    ours = {part["id"]: part for part in mine}
    faults = [f"subtopology {name} is not declared" for name in ours if name not in theirs]
    faults += [f"subtopology {name} is declared, and not here" for name in theirs if name not in ours]
    faults += [
        f"{field} of subtopology {name} is declared as {theirs[name].get(field)}, and here it is {value}"
        for name, part in ours.items()
        for field, value in part.items()
        if name in theirs and _in_order(theirs[name].get(field)) != _in_order(value)
    ]
    if faults:
        raise NotDeclared(
            f"group {group} has another topology than this program: {'; '.join(faults)}. Run the program that it was "
            f"declared by, or declare it anew with a higher epoch than {declared['epoch']} (batonpass groups declare)"
        )


def _in_order(value: object) -> object:
    return sorted(value) if isinstance(value, list) else value
