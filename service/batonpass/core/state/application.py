"""What is known of a Kafka Streams application between its rebalances: when it last asked, and what it was answered.

It asks at rebalances only. So nobody can tell one that rests from one that is stopped, and what is said of its tasks is
what its last rebalance showed.
"""

from typing import Final, NamedTuple

from batonpass.core.state.model import Group
from batonpass.core.state.soft import Refused, Soft

ASKS_AGAIN_MS: Final = 60_000
"""The longest time after which a leader that got no answer asks again."""


class Application(NamedTuple):
    """What is known of an application.

    Attributes:
        id: its application id; "" if its leader has not said it.
        answered_ms: when it last rebalanced and was answered. None: not since this coordinator started.
        heard_ms: when it last asked, whether it was answered or refused. None: not since this coordinator started.
        silent_in_ms: when it will be silent, if it does not ask: a session after it was to. 0: it is.
        refused: its refusals since its last answer. Another application that is refused takes nothing from it.
    """

    id: str
    answered_ms: int | None
    heard_ms: int | None
    silent_in_ms: int
    refused: Refused | None

    @property
    def is_silent(self) -> bool:
        """Whether it has not asked for longer than a session, nor when it was to."""
        return self.silent_in_ms == 0


def application_of(group: Group, soft: Soft, now_ms: int) -> Application | None:
    """Return what is known of the application whose group this is; None for a group whose members heartbeat."""
    if not group.config.kafka_streams:
        return None
    answered_ms = heard_ms = max([one.heard_ms for one in soft.members.values()], default=None)
    # What a coordinator that starts has not answered is asked again.
    expected_ms = max(heard_ms or soft.started_ms + ASKS_AGAIN_MS, rebalance_due_ms(group) or 0)
    refused = soft.refused if soft.refused is not None and not soft.refused.is_another else None
    if refused is not None:
        heard_ms, expected_ms = refused.last_ms, refused.last_ms + ASKS_AGAIN_MS
    silent_in_ms = max(0, expected_ms + group.config.session_timeout_ms + 1 - now_ms)
    return Application(group.config.application_id, answered_ms, heard_ms, silent_in_ms, refused)


def others_refusals(group: Group, soft: Soft, now_ms: int) -> Refused | None:
    """Return those of another application that asks under the group's name, while it does: no answer ends them."""
    others = soft.refused if soft.refused is not None and soft.refused.is_another else None
    is_over = others is None or now_ms - others.last_ms > ASKS_AGAIN_MS + group.config.session_timeout_ms
    return None if is_over else others


def rebalance_due_ms(group: Group) -> int | None:
    """Return when the application was told to rebalance again. In the shadow nobody follows what it is told."""
    return None if group.config.other_assignor else group.next_probe_ms
