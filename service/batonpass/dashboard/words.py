"""Times, numbers and codes of the protocol as people read them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final

from batonpass.client import instant
from batonpass.core.state import durations, reasons
from batonpass.group_words import LEVELS, is_uuid, readable_name

# Said once, in the core; the rest of the dashboard asks for them here.
DASH: Final = durations.DASH
duration: Final = durations.duration
meaning_of: Final = reasons.meaning_of

LEVEL_NAMES: Final = {level: level.replace("-", " ").capitalize() for level in LEVELS}
"""What the levels of a group's health are called, the worst first."""

SHORT_ID: Final = 8
BRIEF: Final = 12

WHY: Final[Mapping[str, str]] = {
    "stays": "stays",
    "balance": "for balance",
    "hot": "its member was too hot",
    "load-shadow": "in shadow, for load:",
    "failed-on-owner": "it failed where it was",
    "no-owner": "it had no owner",
    "drain": "its member drains",
    "pinned": "an operator pinned it",
    "max-tasks": "its member has more than its limit (max_tasks)",
    "topology": "its member is wanted for tasks of a newer topology",
    "handover": "handed over warm",
    "handover-under-way": "handed over warm",
    "failover": "a warm copy took over",
    "takeover": "taken over",
    "cold-start": "started cold",
    "warming": "warms up",
    "drain-deadline": "the drain's deadline",
    "copy-dropped": "a copy is not needed any more",
    "stateless": "it has no state",
    "stuck": "its owner did not come to run it",
    "lost-state": "its state was lost",
    "other-assignor": "in shadow:",
}

CAUSES: Final[Mapping[str, str]] = {
    "left": "left",
    "restarted": "restarted",
    "expired": "is gone: its lease ran out",
    "evicted": "was evicted",
    "replaced": "was replaced by its next run",
    "taken-over": "was taken over by a newer run of its instance",
    "fenced": "was fenced: it did not confirm in time",
    "grace-over": "did not come back from its restart",
    "revoked": "was asked to give it up",
    "suspected": "fell silent",
    "failed": "failed it",
    "lost": "lost its state",
    "restoring": "fell back to restoring",
}
"""What became of the owner of a task, by why the task, or the owner, stopped."""


def gap_of(body: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return how long nobody ran a task, by an event or a run, and how exact that is: "", "up to " or "at least "."""
    at_most_ms = body.get("gap_at_most_ms")
    if at_most_ms is not None:
        return at_most_ms, "up to "
    return body.get("gap_ms"), "at least " if body.get("gap_is_lower_bound") else ""


def number(value: float | None) -> str:
    """Return a number with separated thousands; a dash for None."""
    if value is None:
        return DASH
    if value != int(value):
        return f"{value:,.1f}" if abs(value) < 1_000 else f"{value:,.0f}"
    return f"{int(value):,}"


def short(value: float) -> str:
    """Return a number short enough for a small cell: `812`, `12k`, `3.4M`."""
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            scaled = value / size
            return f"{scaled:.1f}{letter}" if scaled < 9.95 else f"{scaled:.0f}{letter}"
    return f"{value:.0f}"


def count(amount: int, one: str, more: str | None = None) -> str:
    """Return a number of things: `1 task`, `12 tasks`."""
    return f"{number(amount)} {one if amount == 1 else more or one + 's'}"


def counted(names: Mapping[str, str], found: Iterable[str]) -> list[tuple[str, str, int]]:
    """Return how many of each there are, in the order of their names: code, what it is called, number."""
    amounts = Counter(found)
    return [(code, called, amounts[code]) for code, called in names.items() if amounts[code]]


def ago(text: str | None, now: datetime | None = None) -> str:
    """Return how long ago something was, or how soon it will be: `12 s ago`, `in 3 min`; a dash for None.

    In whole seconds, because the page counts on from there.
    """
    at = instant(text)
    if at is None:
        return DASH
    gone_ms = ((now or datetime.now(UTC)) - at).total_seconds() * 1_000
    whole_ms = round(abs(gone_ms) / 1_000) * 1_000
    if not whole_ms:
        return "now"
    return f"{span_whole(whole_ms)} ago" if gone_ms > 0 else f"in {span_whole(whole_ms)}"


def soon(text: str | None, now: datetime | None = None) -> str:
    """Return how soon something that is due will be: `in 3 min`, or `now` if it is a moment overdue."""
    found = ago(text, now)
    return "now" if found.endswith("ago") else found


def span_whole(milliseconds: float) -> str:
    """Return a span in whole seconds, to match a clock beside it."""
    return duration(round(milliseconds / 1_000) * 1_000) if milliseconds >= 500 else "0 s"


def why(code: str | None) -> str:
    """Return why a task is where it is, in words."""
    return WHY.get(code or "", (code or "").replace("-", " "))


def wait_words(wait: Mapping[str, Any]) -> str:
    """Return what a task waits for: of which member, what, and for about how long."""
    who = f"{wait['member']}: " if wait["member"] else ""
    soon_ms = wait["eta_ms"]
    return f"{who}{wait['detail'] or wait['what']}{f', about {span_whole(soon_ms)}' if soon_ms else ''}"


def sentence(text: object) -> str:
    """Return a text as a sentence that stands alone, with a capital letter."""
    return str(text)[:1].upper() + str(text)[1:]


def ended(code: str | None) -> str:
    """Return how a run ended, in words; a dash while it goes on."""
    return CAUSES.get(code, code.replace("-", " ")) if code else DASH


def briefly(names: Iterable[str]) -> dict[str, str]:
    """Return each name short enough for a narrow place: what all begin with goes, then what is in the middle.

    Their ends stay, where names differ. A name that would not be told from another stays whole.
    """
    whole = list(dict.fromkeys(names))
    pairs = zip(min(whole, default=""), max(whole, default=""), strict=False) if len(whole) > 1 else ()
    shared = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    shared = shared[: max(shared.rfind(mark) for mark in "-._/:") + 1]
    found = {
        one: one if len(one) <= BRIEF else _cut(f"…{one.removeprefix(shared)}" if shared else one) for one in whole
    }
    times = Counter(found.values())
    return {one: text if times[text] == 1 else one for one, text in found.items()}


def _cut(name: str) -> str:
    """Return a name without its middle, if it is too long."""
    head = (BRIEF - 1) // 3
    return name if len(name) <= BRIEF else f"{name[:head]}…{name[head + 1 - BRIEF :]}"


NAMES_MAX = 100_000
"""How many members are remembered by name: of a fleet whose workers come and go there are ever more."""


class Names:
    """What people call members: the instance id if there is one, else the beginning of the id."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._known: dict[str, str] = dict(known or {})

    def learn(self, member_id: str, name: str | None) -> None:
        """Remember the instance id of a member, also after the member has gone, because past events name it."""
        known = readable_name(name)
        if known:
            # The one that was named least lately goes.
            self._known.pop(member_id, None)
            self._known[member_id] = known
            if len(self._known) > NAMES_MAX:
                del self._known[next(iter(self._known))]

    def learn_from(self, event: Mapping[str, Any]) -> None:
        """Remember the instance id in an event of a member, if it has one: who joined, went or is away."""
        self.learn(event.get("member") or "", (event.get("body") or {}).get("instance_id"))

    def __call__(self, member_id: str | None) -> str:
        """Return the name of a member; a dash for None."""
        if not member_id:
            return DASH
        known = self._known.get(member_id)
        if known:
            return known
        return f"{member_id[:SHORT_ID]}…" if is_uuid(member_id) else member_id

    def __contains__(self, member_id: object) -> bool:
        """Whether a member is called something else than its id."""
        return member_id in self._known

    def within(self, sentence: str) -> str:
        """Return a sentence with names in place of ids."""
        words = sentence.split(" ")
        return " ".join(self._word(word) for word in words)

    def _word(self, word: str) -> str:
        bare = word.strip(".,;:()")
        return word.replace(bare, self(bare)) if bare and (bare in self._known or is_uuid(bare)) else word
