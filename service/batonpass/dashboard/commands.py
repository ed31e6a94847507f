"""Commands: the visitor confirms each and gives a reason, and it is sent with the visitor's own token."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from batonpass.client import Refused, Unreachable, path
from batonpass.dashboard.login import fields
from batonpass.dashboard.origins import foreign
from batonpass.dashboard.request_context import RequestContext, linked, refusal_of
from batonpass.dashboard.words import sentence

REASON_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what it is called, what it does, and how it is sent.

    ``done`` is what is said afterwards. ``subject`` is what it is about: `group`, `member` or `task`. ``place`` is the
    end of its path if that is not its name. ``is_grave``: it may interrupt work. ``extra`` names its fields beside the
    reason.
    """

    label: str
    what: str
    done: str
    subject: str = "group"
    method: str = "POST"
    place: str = ""
    is_grave: bool = False
    extra: tuple[str, ...] = ()


COMMANDS: Final[Mapping[str, Command]] = {
    "probe": Command(
        "Probe now",
        "Looks now whether warmups have caught up, and moves what is ready. It happens by itself anyway, later.",
        "The group was probed.",
    ),
    "pause": Command(
        "Pause",
        "Holds moves. Tasks that run go on running. With scope balance, recovery, drains and handovers under way go on;"
        " with scope all, drains and new copies wait too. Tasks whose member dies are taken over in any case.",
        "Moves are paused.",
        extra=("scope", "for"),
    ),
    "resume": Command(
        "Resume",
        "Ends a pause, and a storm: moves go on at once.",
        "Moves go on.",
    ),
    "drain": Command(
        "Drain",
        "The member hands over everything that it has, warm, and goes on processing until it has. It can be taken back.",
        "The member drains.",
        subject="member",
        extra=("deadline", "until-undone"),
    ),
    "undrain": Command(
        "Undrain",
        "The member stays: it keeps what it has, and may be given tasks again. If its instance is kept out, that ends too.",
        "The member stays.",
        subject="member",
        method="DELETE",
        place="drain",
    ),
    "evict": Command(
        "Evict",
        "Removes the member. Its tasks are free when its lease is over, and stand still until then unless a copy is"
        " ready. If its process still runs it stops its tasks without committing.",
        "The member is evicted.",
        subject="member",
        is_grave=True,
        extra=("dead", "until-undone"),
    ),
    "trust": Command(
        "Trust again",
        "Forgets that tasks failed on the member: it is given tasks again, also those that failed there.",
        "The member is trusted again.",
        subject="member",
    ),
    "pin": Command(
        "Pin",
        "Binds the task to a member: it stays there, or moves there warm.",
        "The task is pinned.",
        subject="task",
        extra=("member",),
        method="PUT",
    ),
    "unpin": Command(
        "Take the pin off",
        "The task may be placed anywhere again.",
        "The pin is off.",
        subject="task",
        method="DELETE",
        place="pin",
    ),
    "release": Command(
        "Release",
        "Forgets where the task failed: a parked one is tried again, and any member may have it.",
        "What failed is forgotten: the task may run on any member.",
        subject="task",
    ),
}


async def ask(
    context: RequestContext, *, said: str = "", given: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """Show what a command would do, and ask for a reason and a confirmation."""
    name, command, subject = _named(context)
    if command is None or (command.subject != "group" and not subject):
        detail = f"there is no command {name} on what the address names"
        raise Refused(404, {"detail": detail})
    members = await context.client.members(context.group) if command.subject != "group" else []
    return context.show(
        "command.html",
        status=status,
        live=False,
        title=command.label,
        command=command,
        command_name=name,
        subject=subject,
        members=[one["member_id"] for one in members],
        instance_id=next((one["instance_id"] for one in members if one["member_id"] == subject), None),
        said=said,
        given=given or {},
        back=_back(context, command, subject),
    )


async def carry_out(context: RequestContext) -> Response:
    """Send a confirmed command, and show the result."""
    given = await fields(context.request)
    name, command, subject = _named(context)
    if command is None:
        return await ask(context)
    stamp = given.get("stamp", "")
    if said := foreign(context.request):
        return await ask(context, said=said, status=403)
    if not hmac.compare_digest(stamp.encode(), context.session.stamp.encode()):
        return await ask(context, said="This form is not of your session. Look at it again, then confirm.", status=403)
    if not context.session.may_command:
        return await ask(context, said="Your token may look and not command.", given=given, status=403)
    reason = given.get("reason", "")[:REASON_MAX]
    if not reason:
        return await ask(context, said="Say why: the reason stands in the audit trail.", given=given, status=422)
    try:
        query, body = request_of(name, given)
    except ValueError as error:
        return await ask(context, said=str(error), given=given, status=422)
    place = path("groups", context.group, *([f"{command.subject}s", subject] if command.subject != "group" else []))
    try:
        await context.client.command(
            command.method, f"{place}/{command.place or name}", query={"reason": reason} | query, body=body
        )
    except (Refused, Unreachable) as error:
        said = f"{sentence(error)} {refusal_of(error).todo}".strip()
        return await ask(context, said=said, given=given, status=getattr(error, "status", 503))
    context.session.flash = command.done
    return RedirectResponse(_back(context, command, subject), 303)


def request_of(name: str, given: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return query and body of a command from the fields of its form.

    Raises:
        ValueError: when a field cannot be understood; the text says what to write.
    """
    match name:
        case "pause":
            scope = "all" if given.get("scope") == "all" else "balance"
            return {}, {"scope": scope, **_span("for_ms", given.get("for"), "The pause")}
        case "drain":
            return _span("deadline_ms", given.get("deadline"), "The deadline") | _holding(given), None
        case "evict":
            return ({"dead": "true"} if given.get("dead") == "yes" else {}) | _holding(given), None
        case "pin":
            if not given.get("member"):
                raise ValueError("Choose the member that is to have the task.")
            return {}, {"member": given["member"]}
        case _:
            return {}, None


def _holding(given: Mapping[str, str]) -> dict[str, Any]:
    """Return whether a command holds for the instance, and for how long.

    Raises:
        ValueError: when the time cannot be understood.
    """
    if given.get("until-undone") != "yes":
        return {}
    return {"until_undone": "true", **_span("for_ms", given.get("kept-out-for"), "The time to keep it out")}


def _span(name: str, text: str | None, whose: str) -> dict[str, Any]:
    """Return a span of minutes, in milliseconds and under its name; nothing if it was left empty."""
    if not text:
        return {}
    try:
        minutes = float(text)
    except ValueError:
        minutes = -1.0
    if not 0 < minutes <= 30 * 24 * 60:
        raise ValueError(f"{whose} is a number of minutes, as in 30; leave it empty for none.")
    return {name: round(minutes * 60_000)}


def _named(context: RequestContext) -> tuple[str, Command | None, str]:
    name = str(context.request.path_params["command"])
    command = COMMANDS.get(name)
    return name, command, context.asked(command.subject) if command is not None and command.subject != "group" else ""


def _back(context: RequestContext, command: Command, subject: str) -> str:
    more = [] if command.subject == "group" else [f"{command.subject}s", subject]
    return linked(context.dashboard.config.root_path, "groups", context.group, *more)
