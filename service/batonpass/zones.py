"""Times of day as a reader wants them: in one zone, which has a name, and with the date unless it is today."""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone, by the name of the IANA database."""

    name: str
    info: tzinfo

    def local(self, at: datetime) -> datetime:
        return at.astimezone(self.info)

    def clock(self, text: str, now: datetime | None = None) -> str:
        """Return the time of day of an instant (RFC 3339), and its date if that is not today."""
        local, today = self.local(datetime.fromisoformat(text)), self.local(now or datetime.now(UTC))
        day = "" if local.date() == today.date() else "%d %b " if local.year == today.year else "%d %b %Y "
        return local.strftime(f"{day}%H:%M:%S")

    def whole(self, text: str) -> str:
        return f"{self.local(datetime.fromisoformat(text)):%d %b %Y %H:%M:%S} {self.name}"


UTC_ZONE: Final = Zone("UTC", UTC)


def zone_named(name: str) -> Zone:
    """Return the zone of a name, as in `Europe/Vienna`.

    Raises:
        ValueError: when there is none on this machine; the text says what to write.
    """
    if name == UTC_ZONE.name:
        return UTC_ZONE
    try:
        return Zone(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"there is no time zone {name!r} on this machine; write UTC, or for example Europe/Vienna"
        ) from None
