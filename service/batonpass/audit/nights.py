"""The audit of the day before, every night: which days are to be audited, and the loop that audits one after another.

Nothing is kept here that another process would have to know: ``audit_runs`` and the log show which days lack an audit.
Only tries are remembered, so that a day without a verdict is not tried without an end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

from adbc_driver_manager import Error

from batonpass.audit.database import rows
from batonpass.audit.plan import MissingDay, plan_day, time_of_database
from batonpass.audit.runs import reason_of, taken

LOOK_EVERY_S: Final = 30.0
"""How often the loop checks whether a day is to be audited."""

VERDICTS: Final = (0, 1)
"""The exit codes of an audit that reached a verdict, or that another process has done."""

_OPEN: Final = (
    "select cast(d as date) from generate_series(timestamp '{first}', '{last}', '1 day') as d"
    " where not exists (select from audit_runs where day = cast(d as date) and {taken})"
    " order by 1 desc"
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When days are audited.

    Attributes:
        after: how long after its end a day is audited.
        days: for how many days, up to yesterday, a missing audit is made up.
        tries: how often a day is tried a night.
        pause: how long after the beginning of a try without a verdict it is tried again.
    """

    after: timedelta = timedelta(minutes=15)
    days: int = 7
    tries: int = 3
    pause: timedelta = timedelta(minutes=15)

    def night(self, now: datetime) -> date:
        """Return the newest day that may be audited; one more with each night."""
        return (now - self.after).date() - timedelta(days=1)


class Nights:
    """The days of one database that are still to be audited."""

    def __init__(self, url: str, schedule: Schedule, settings: Mapping[str, object] | None = None) -> None:
        """Look at a database; nothing is read before ``due``. ``settings`` are those of the audits of these nights."""
        self._url = url
        self._taken = taken(settings or {})
        self.schedule = schedule
        self._tries: dict[date, list[datetime]] = {}
        # Days that are over and have no record: that does not change.
        self._empty: set[date] = set()

    def now(self) -> datetime:
        """Return what time it is in the database: it says when a day is over, and not this machine.

        Raises:
            adbc_driver_manager.Error: when the database cannot be read.
        """
        return time_of_database(partial(rows, self._url))

    def due(self, now: datetime) -> date | None:
        """Return the newest day that is to be audited now.

        Raises:
            adbc_driver_manager.Error: when the database cannot be read.
        """
        return next((day for day in self._open(now) if self._may_be_tried(day, now) and self._has_records(day)), None)

    def tried(self, day: date, now: datetime) -> datetime | None:
        """Called when a try that began ``now`` is over; return when another may begin. None: with the next night."""
        self._tries.setdefault(day, []).append(now)
        return now + self.schedule.pause if len(self._of_this_night(day, now)) < self.schedule.tries else None

    def _open(self, now: datetime) -> Sequence[date]:
        """Return the days that no process has audited since they ended, or is auditing; the newest first."""
        last = self.schedule.night(now)
        first = last - timedelta(days=self.schedule.days - 1)
        found = rows(self._url, _OPEN.format(first=first, last=last, taken=self._taken))
        return [day for (day,) in found]

    def _may_be_tried(self, day: date, now: datetime) -> bool:
        tries = self._of_this_night(day, now)
        return not tries or (len(tries) < self.schedule.tries and now >= tries[-1] + self.schedule.pause)

    def _of_this_night(self, day: date, now: datetime) -> list[datetime]:
        night = self.schedule.night(now)
        return [at for at in self._tries.get(day, []) if self.schedule.night(at) == night]

    def _has_records(self, day: date) -> bool:
        if day not in self._empty:
            try:
                plan_day(partial(rows, self._url), day)
            except MissingDay:
                self._empty.add(day)
        return day not in self._empty


def keep_nights(
    nights: Nights,
    audit: Callable[[date], int],
    *,
    wait: Callable[[float], None],
    tell: Callable[[str], None],
    url: str,
    now: Callable[[], datetime] | None = None,
) -> None:
    """Have every day audited, until something is raised.

    ``audit`` does one day, and returns the exit code of `batonpass audit`. ``now`` is that of ``nights`` by default.
    """
    now = now or nights.now
    is_away, told_of = False, None
    while True:
        try:
            at = now()
            day = nights.due(at)
        except Error as error:
            if not is_away:
                tell(f"the database cannot be read; that is waited for: {reason_of(error, url)}")
            is_away = True
            wait(LOOK_EVERY_S)
            continue
        if is_away:
            tell("the database can be read again")
            is_away = False
        if day is None:
            night = nights.schedule.night(at)
            if night != told_of:
                begins = _next(nights.schedule, night)
                tell(f"nothing is left to audit up to {night}; the day after it is audited from {begins} on")
            told_of = night
            wait(LOOK_EVERY_S)
            continue
        tell(f"auditing {day}")
        code = audit(day)
        again = nights.tried(day, at)
        if code not in VERDICTS:
            when = "with the next night" if again is None else f"from {again:%H:%M} on"
            tell(f"the audit of {day} reached no verdict (exit code {code}); it is tried again {when}")


def _next(schedule: Schedule, night: date) -> str:
    at = datetime.combine(night + timedelta(days=2), datetime.min.time(), UTC) + schedule.after
    return f"{at:%Y-%m-%d %H:%M} (UTC)"
