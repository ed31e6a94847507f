"""The protocol's errors: why a request is refused, and what the caller must do next.

What each of them means to a caller is in docs/protocol.md, 10.5. An error is a value as well as an exception: a
decision may carry it as its reply, together with records to persist.
"""

from collections.abc import Sequence
from typing import ClassVar


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

    def __init_subclass__(cls, **described: str | int) -> None:
        """Take a kind's type, status, action and title. What is not said is as it is for its base."""
        for name, value in described.items():
            setattr(cls, name, value)

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


class UnknownGroup(ProtocolError, type="unknown-group", status=404, title="Unknown group"):
    """No group of this name has been declared."""


class UnknownMember(ProtocolError, type="unknown-member", status=404, action="stop-and-rejoin", title="Unknown member"):
    """The group does not know this member id."""


class Gone(ProtocolError, type="gone", status=409, action="stop-and-rejoin", title="Member is gone"):
    """The member id has left, or a join uses an id that was used before."""


class Fenced(ProtocolError, type="fenced", status=409, action="stop-and-rejoin", title="Member is fenced"):
    """The member expired, was evicted or replaced, or did not confirm a revocation in time."""


class FencedInstanceId(
    ProtocolError, type="fenced-instance-id", status=409, action="stop", title="Instance id was taken over"
):
    """A newer run of the same instance has taken over."""


class StaleMemberEpoch(
    ProtocolError, type="stale-member-epoch", status=409, action="retry", title="Stale member epoch"
):
    """The heartbeat carries an epoch below one that this member has echoed before."""


class InstanceIdInUse(
    ProtocolError, type="instance-id-in-use", status=409, action="retry", title="Instance id is in use"
):
    """The holder of the instance id is alive, or ``replaces`` names a run of another instance."""


class InvalidTopology(ProtocolError, type="invalid-topology", title="Invalid topology"):
    """The topology cannot be accepted."""


class InvalidConfig(ProtocolError, type="invalid-config", title="Invalid config"):
    """The group config cannot be accepted."""


class InvalidRequest(ProtocolError, title="Invalid request"):
    """The request is malformed or contradicts itself."""


class GroupNotEmpty(ProtocolError, type="group-not-empty", status=409, title="Group is not empty"):
    """The group still has members."""


class NotSafeToStop(ProtocolError, type="not-safe-to-stop", status=409, action="retry", title="Not safe to stop"):
    """Stopping this member now would interrupt processing."""


class PreconditionRequired(ProtocolError, type="precondition-required", status=428, title="Precondition required"):
    """A change of an existing group needs ``If-Match`` with its last ``ETag``."""


class PreconditionFailed(ProtocolError, type="precondition-failed", status=412, title="Precondition failed"):
    """The group has changed since the caller read it."""


class LimitExceeded(ProtocolError, type="limit-exceeded", status=429, action="retry", title="Limit exceeded"):
    """A documented limit is exceeded: too much at once (429, try again), or more than is ever accepted (413)."""


class TooLarge(LimitExceeded, status=413, action="fix"):
    """The request is larger than is ever accepted. Send less."""
