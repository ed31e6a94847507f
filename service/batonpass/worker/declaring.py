"""Declaring a group from the worker that knows its topology, or finding that it was declared with another one."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from batonpass.client import ApiError, CoordinatorClient, Refused, path
from batonpass.worker.options import Options

log = logging.getLogger("batonpass.worker")

PATIENCE_S: Final = 60.0
"""How long a start waits for a coordinator that answers; then the program ends, for what runs it to start it again."""

SAY_S: Final = 5.0
"""How long no coordinator may answer before that is a warning, and another one after each further such time."""


class NotDeclared(Exception):
    """The group is declared with another topology, or the coordinator refuses the declaration."""


async def declare(
    urls: Sequence[str],
    group: str,
    subtopologies: Sequence[Mapping[str, object]],
    config: Mapping[str, object],
    options: Options,
) -> int:
    """Declare the group if nobody has; ``config`` counts only then, because later it is the operators'.

    Return the epoch of the topology that this program is for. Every join is to name it: one that names none, as after a
    lease that ran out, would stand for whatever is declared by then. The log says which settings the group has
    otherwise.

    A worker of an older topology than the declared one (`Options.topology_epoch`) is not compared: it gets no tasks of
    what was changed since.

    Raises:
        NotDeclared: naming the fields that differ with both values, or what the coordinator said.
        ConnectionError: when no coordinator answers within `PATIENCE_S`.
        ValueError: when a URL is none.
    """
    topology: dict[str, object] = {"subtopologies": list(subtopologies)}
    if options.topology_epoch is not None:
        topology["epoch"] = options.topology_epoch
    token = options.token() if callable(options.token) else options.token
    client = CoordinatorClient(
        ",".join(urls),
        token.strip() if token else None,
        patience_s=min(SAY_S, PATIENCE_S),
        trusted=options.tls,
        transport=options.transport,
    )
    async with client:
        try:
            declared = await _ask(client, "GET", group, options)
            if declared is None:
                asked = {"topology": topology, "config": dict(config)}
                declared = await _ask(client, "PUT", group, options, asked)
                if declared is not None:
                    log.info("declared group %s: %s", group, json.dumps(topology))
                    return int(declared["topology"]["epoch"])
                # Another worker was faster.
                declared = await _ask(client, "GET", group, options)
        except ApiError as error:
            todo = ""
            if isinstance(error, Refused) and error.kind in {"unauthenticated", "forbidden"}:
                todo = (
                    " BATONPASS_TOKEN is to have a token of role worker for it: `batonpass token create NAME --role worker "
                    f"--group {group}` makes one"
                )
            raise NotDeclared(f"group {group} cannot be declared: {error}{todo}") from error
    _compare(group, subtopologies, declared["topology"], options.topology_epoch)
    _tell_settings(group, config, declared["config"])
    return int(declared["topology"]["epoch"]) if options.topology_epoch is None else options.topology_epoch


async def _ask(client: CoordinatorClient, method: str, group: str, options: Options, body: object = None) -> Any:
    """Return what a coordinator says of the group; None when it is not there yet, or there already.

    Raises:
        ApiError: when it is refused.
        ConnectionError: when no coordinator can answer for `PATIENCE_S`.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            said = await client.call(
                method, path("groups", group), body=body, headers=options.headers, is_repeatable=True
            )
        except ApiError as error:
            if isinstance(error, Refused) and error.kind in {"unknown-group", "precondition-required"}:
                return None
            if not error.is_passing:
                raise
            if time.monotonic() > until:
                raise ConnectionError(f"no coordinator has answered for {PATIENCE_S:.0f} s ({error})") from error
            log.warning("no coordinator answers: %s", error)
            await asyncio.sleep(error.again_s)
        else:
            return said.body


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


def _tell_settings(group: str, mine: Mapping[str, object], declared: Mapping[str, Any]) -> None:
    others = "; ".join(
        f"{name} is {declared.get(name, 'unknown')}, and here it is {value}"
        for name, value in mine.items()
        if name not in declared or _in_order(declared[name]) != _in_order(value)
    )
    if others:
        log.info(
            "group %s has its own settings, and not those of this program's config: %s (batonpass groups declare "
            "changes them)", group, others,
        )  # fmt: skip


def _in_order(value: object) -> object:
    return sorted(value) if isinstance(value, list) else value
