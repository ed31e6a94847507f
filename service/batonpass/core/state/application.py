"""What is known of a Kafka Streams application between its rebalances: when it last asked, and what it was answered.

It asks at rebalances only. So nobody can tell one that rests from one that is stopped, and what is said of its tasks is
what its last rebalance showed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from batonpass.core.state.model import Group
from batonpass.core.state.soft import Refused, Soft

ASKS_AGAIN_MS: Final = 60_000
"""The longest time after which a leader that got no answer asks again."""


class Application(NamedTuple):
    """What is known of an application.

    Attributes:
        answered_ms: when it last rebalanced and was answered. None: not since this coordinator started.
        heard_ms: when it last asked, whether it was answered or refused. None: not since this coordinator started.
        is_silent: it has not asked for longer than a session, nor when it was to.
        refused: the refusals since its last answer.
    """

    answered_ms: int | None
    heard_ms: int | None
    is_silent: bool
    refused: Refused | None


def application_of(group: Group, soft: Soft, now_ms: int) -> Application | None:
    """Return what is known of the application whose group this is; None for a group whose members heartbeat."""
    if not group.config.kafka_streams:
        return None
    answered_ms = heard_ms = max([one.heard_ms for one in soft.members.values()], default=None)
    expected_ms = max(heard_ms or soft.started_ms, group.next_probe_ms or 0)
    if soft.refused is not None:
        heard_ms, expected_ms = soft.refused.last_ms, soft.refused.last_ms + ASKS_AGAIN_MS
    is_silent = now_ms - expected_ms > group.config.session_timeout_ms
    return Application(answered_ms, heard_ms, is_silent, soft.refused)
