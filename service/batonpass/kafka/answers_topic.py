"""What stands in ``batonpass.assignments``: for each member the last answer, until the member is gone.

The topic is compacted. A record is written when something of the answer changed that a member acts on: epoch,
assignment, status, or the wish for a full report. It is always whole, for a reader that begins here knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from batonpass.codec.answers import answer_body, problem_body, to_json
from batonpass.core.answers import answer_to_poll
from batonpass.core.errors import ProtocolError
from batonpass.core.replies import Answer

if TYPE_CHECKING:
    from batonpass.core.ids import GroupId, MemberId
    from batonpass.core.model import Group
    from batonpass.core.policy import Policy
    from batonpass.core.soft import Soft

NEVER_SEEN = -1
"""An epoch below every member's: what follows it is the whole assignment."""


class AssignmentRecord(NamedTuple):
    """A record to write; ``value`` of None is a tombstone."""

    key: bytes
    value: bytes | None


class AssignmentsTopic:
    """Knows what was written last of each member, and what is to be written now."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._written: dict[GroupId, dict[MemberId, tuple[object, ...] | None]] = {}

    def news(self, group: Group, soft: Soft) -> Iterator[AssignmentRecord]:
        """Yield what has to be written so that the topic says what holds for every member of a group."""
        known = self._written.get(group.id)
        if known is None:
            # Who went while nobody wrote is not known here: a tombstone too many does no harm.
            known = self._written[group.id] = dict.fromkeys(group.gone)
        for member_id in sorted(known.keys() - group.members.keys()):
            del known[member_id]
            yield AssignmentRecord(key_of(group.id, member_id), None)
        for member_id in sorted(group.members):
            found = answer_to_poll(group, soft, member_id, NEVER_SEEN, self._policy)
            if not isinstance(found, Answer):
                continue
            print_ = (found.member_epoch, found.status, found.report)
            if known.get(member_id) != print_:
                known[member_id] = print_
                yield AssignmentRecord(key_of(group.id, member_id), to_json(answer_body(found)))

    def refusal(self, group_id: GroupId, member_id: MemberId, error: ProtocolError) -> AssignmentRecord:
        """Return the record that tells a member that it was refused; what holds is written again after it."""
        known = self._written.get(group_id, {})
        if member_id in known:
            known[member_id] = None
        return AssignmentRecord(key_of(group_id, member_id), to_json(problem_body(error)))

    def forget(self, group_id: GroupId) -> Iterator[AssignmentRecord]:
        """Yield tombstones for the members of a group that was deleted."""
        for member_id in sorted(self._written.pop(group_id, {})):
            yield AssignmentRecord(key_of(group_id, member_id), None)

    def let_go(self, group_id: GroupId) -> None:
        """Forget a group that another coordinator writes for from now on."""
        self._written.pop(group_id, None)

    def groups(self) -> list[GroupId]:
        """Return the groups that something was written of."""
        return sorted(self._written)


def key_of(group_id: GroupId, member_id: MemberId) -> bytes:
    """Return the key of a member's record."""
    return f"{group_id}/{member_id}".encode()
