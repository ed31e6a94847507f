"""The protocol's errors: why a request is refused, and what the caller must do next.

The tree (type, status, action; docs/protocol.md, section 10, says what each means):

    ProtocolError
    ├── UnknownGroup          unknown-group          404  fix
    ├── UnknownMember         unknown-member         404  stop-and-rejoin
    ├── Gone                  gone                   409  stop-and-rejoin
    ├── Fenced                fenced                 409  stop-and-rejoin
    ├── FencedInstanceId      fenced-instance-id     409  stop
    ├── StaleMemberEpoch      stale-member-epoch     409  retry      carries the assignment to take
    ├── InstanceIdInUse       instance-id-in-use     409  retry      carries retry_after_ms
    ├── InvalidTopology       invalid-topology       422  fix        carries path and reason of each fault
    ├── InvalidConfig         invalid-config         422  fix
    ├── InvalidRequest        invalid-request        422  fix
    ├── GroupNotEmpty         group-not-empty        409  fix
    ├── NotSafeToStop         not-safe-to-stop       409  retry
    ├── PreconditionRequired  precondition-required  428  fix
    ├── PreconditionFailed    precondition-failed    412  fix
    └── LimitExceeded         limit-exceeded         429  retry
        └── TooLarge          limit-exceeded         413  fix

An error is a value as well as an exception: a decision may carry it as its reply, together with records to persist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class ProtocolError(Exception):
    """A request that is refused, with what the caller should do next.

    Attributes:
        detail: what was seen, what was expected, and what to do, in a sentence or two.
        errors: for malformed requests, one ``(path, reason)`` per fault.
        retry_after_ms: how long to wait before trying again, if waiting helps.
        answer: the assignment to take instead (``stale-member-epoch`` only).
    """

    type: ClassVar[str] = "invalid-request"
    status: int = 422
    action: ClassVar[str] = "fix"
    title: ClassVar[str] = "The request is refused"

    def __init__(
        self,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        retry_after_ms: int | None = None,
        answer: object = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after_ms = retry_after_ms
        self.answer = answer

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self.detail))

    def _key(self) -> tuple[object, ...]:
        return (self.detail, self.errors, self.retry_after_ms, self.answer)


class UnknownGroup(ProtocolError):
    """No group of this name has been declared."""

    type = "unknown-group"
    status = 404
    title = "Unknown group"


class UnknownMember(ProtocolError):
    """The group does not know this member id."""

    type = "unknown-member"
    status = 404
    action = "stop-and-rejoin"
    title = "Unknown member"


class Gone(ProtocolError):
    """The member id has left, or a join uses an id that was used before."""

    type = "gone"
    status = 409
    action = "stop-and-rejoin"
    title = "Member is gone"


class Fenced(ProtocolError):
    """The member expired, was evicted or replaced, or did not confirm a revocation in time."""

    type = "fenced"
    status = 409
    action = "stop-and-rejoin"
    title = "Member is fenced"


class FencedInstanceId(ProtocolError):
    """A newer run of the same instance has taken over."""

    type = "fenced-instance-id"
    status = 409
    action = "stop"
    title = "Instance id was taken over"


class StaleMemberEpoch(ProtocolError):
    """The heartbeat carries an epoch below one that this member has echoed before."""

    type = "stale-member-epoch"
    status = 409
    action = "retry"
    title = "Stale member epoch"


class InstanceIdInUse(ProtocolError):
    """The holder of the instance id is alive, or ``replaces`` names a run of another instance."""

    type = "instance-id-in-use"
    status = 409
    action = "retry"
    title = "Instance id is in use"


class InvalidTopology(ProtocolError):
    """The topology cannot be accepted."""

    type = "invalid-topology"
    title = "Invalid topology"


class InvalidConfig(ProtocolError):
    """The group config cannot be accepted."""

    type = "invalid-config"
    title = "Invalid config"


class InvalidRequest(ProtocolError):
    """The request is malformed or contradicts itself."""

    title = "Invalid request"


class GroupNotEmpty(ProtocolError):
    """The group still has members."""

    type = "group-not-empty"
    status = 409
    title = "Group is not empty"


class NotSafeToStop(ProtocolError):
    """Stopping this member now would interrupt processing."""

    type = "not-safe-to-stop"
    status = 409
    action = "retry"
    title = "Not safe to stop"


class PreconditionRequired(ProtocolError):
    """A change of an existing group needs ``If-Match`` with its last ``ETag``."""

    type = "precondition-required"
    status = 428
    title = "Precondition required"


class PreconditionFailed(ProtocolError):
    """The group has changed since the caller read it."""

    type = "precondition-failed"
    status = 412
    title = "Precondition failed"


class LimitExceeded(ProtocolError):
    """A documented limit is exceeded: too much at once (429, try again), or more than is ever accepted (413)."""

    type = "limit-exceeded"
    status = 429
    action = "retry"
    title = "Limit exceeded"


class TooLarge(LimitExceeded):
    """The request is larger than is ever accepted. Send less."""

    status = 413
    action = "fix"
