"""How well a member may take what it does not have: the one answer for placement, handovers and takeovers.

A member that is silent for longer than a heartbeat can be late, or away to restart, cannot begin a task before it is
heard. So it keeps the place of what it has, and gets something new only if no member is there that may have it. Nothing
is taken from an owner for it at all.
"""

from enum import IntEnum


class Availability(IntEnum):
    """How well a member may take something new. Lower is better. The worst that holds of a member counts.

    A draining member runs what it takes at once, but has to hand it over again, so it is no target. From ``OVERDUE`` on
    it is not known when the member would begin.
    """

    THERE = 0
    DRAINING = 1
    OVERDUE = 2
    SUSPECTED = 3
    AWAY = 4

    @property
    def is_heard(self) -> bool:
        """Whether the member would begin at once."""
        return self <= Availability.DRAINING
