"""What the queries of calls that only look back or explain may hold."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from batonpass.codec.bodies import Count

PAGE_MAX: Final = 1_000

Page = Annotated[int, Meta(ge=1, le=PAGE_MAX)]


class EventsQuery(Struct, forbid_unknown_fields=True):
    """A page of events: at most ``limit`` of those after the position ``after``, oldest first.

    With ``newest`` or ``before`` it is read backwards: those below ``before``, or all, newest first.
    """

    after: Count | UnsetType = UNSET
    before: Count | UnsetType = UNSET
    newest: bool = False
    limit: Page = 100


class BackQuery(Struct, forbid_unknown_fields=True):
    """A page of a list that begins with the newest: at most ``limit`` entries, those below ``before``."""

    before: Count | UnsetType = UNSET
    limit: Page = 100


class TaskQuery(Struct, forbid_unknown_fields=True):
    """How many of the last changes of a task are shown."""

    limit: Page = 100


class ExplainQuery(Struct, forbid_unknown_fields=True):
    """How many of the tasks that wait are listed."""

    limit: Page = 100


class AuditsQuery(Struct, forbid_unknown_fields=True):
    """A page of audited days, newest first: at most ``limit`` of those that come after the day ``after`` in it."""

    after: date | UnsetType = UNSET
    limit: Page = 100


class FindingsQuery(Struct, forbid_unknown_fields=True):
    """A page of findings: at most ``limit`` of those after the number ``after``."""

    after: Count = 0
    limit: Page = 100


class NoQuery(Struct, forbid_unknown_fields=True):
    """Nothing may be asked."""
