"""The coordinator of a world without faults: the real core, with a log that takes every append at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from batonpass.core.answers import answer_to_poll
from batonpass.core.decide import Decision, decide
from batonpass.core.ids import GroupId, MemberId
from batonpass.core.inputs import Input, PollBroken, PollOpened, Started, Tick
from batonpass.core.model import Group
from batonpass.core.policy import Policy
from batonpass.core.replies import Reply
from batonpass.core.soft import Soft
from batonpass.simulate.timeline import Timeline
from batonpass.simulate.wire import Body, to_answer, to_input, to_wait
from batonpass.worker.protocol import Request

Respond = Callable[[int, Body | None], None]
Observe = Callable[[Group, Soft, Input, Decision, int], None]
"""Hears of a decision: the group and what was heard of it before, the input, what was decided, and when."""


class IdealCoordinator:
    """Takes the requests of members, ticks when the core asks for it, and answers long-polls as assignments change.

    `committed` is called with the group after every decision that wrote records; `observe`, before that, with all that
    the decision was made of.
    """

    def __init__(
        self,
        timeline: Timeline,
        committed: Callable[[Group], None],
        *,
        group_id: str = "compared",
        observe: Observe | None = None,
    ) -> None:
        self.group = Group(GroupId(group_id))
        self.soft = Soft()
        self.decisions = 0
        self._observe = observe
        self._policy = Policy()
        self._timeline = timeline
        self._committed = committed
        self._tick_at_ms: int | None = None
        # Who waits for news beyond which epoch, and the number of the poll, by member.
        self._polls: dict[MemberId, tuple[int, int, Respond]] = {}
        self._opened = 0
        self.take(Started())

    def take(self, item: Input) -> Reply:
        """Decide on an input, commit, then answer."""
        before, soft, now_ms = self.group, self.soft, self._timeline.now_ms
        decision = decide(before, soft, (item,), now_ms, self._policy)
        self.decisions += 1
        self.group, self.soft = decision.after, decision.soft
        self._tick_at(decision.wake_at_ms)
        if decision.records:
            if self._observe is not None:
                self._observe(before, soft, item, decision, now_ms)
            self._committed(self.group)
            for member_id in sorted(self._polls):
                self._look_at_poll(member_id)
        return decision.replies[0]

    def serve(self, request: Request, respond: Respond) -> None:
        """Answer one request; a long-poll when there is news, or at the end of its wait."""
        item = to_input(request)
        if item is not None:
            respond(*to_answer(self.take(item)))
            return
        member_id = MemberId(request.member_id)
        self.take(PollOpened(member_id))
        self._opened += 1
        after, wait_ms = to_wait(request)
        self._polls[member_id] = (after, self._opened, respond)
        self._look_at_poll(member_id)
        self._timeline.after(wait_ms, self._end_poll, member_id, self._opened)

    def poll_broke(self, member_id: str) -> None:
        """Take it that the socket of a member's long-poll closed."""
        if self._polls.pop(MemberId(member_id), None) is not None:
            self.take(PollBroken(MemberId(member_id)))

    def start_again(self) -> None:
        """Begin anew with the records alone, as a coordinator does that was restarted: nothing is known of anybody."""
        for member_id in sorted(self._polls):
            _, _, respond = self._polls.pop(member_id)
            respond(204, None)
        self.soft = Soft()
        self.take(Started())

    def leap(self, by_ms: int) -> None:
        """Have everybody heard so much later; the timeline leaps beside it.

        What the core asked to be woken for comes as much later: else it would take itself to have been away, and judge
        nobody for a session timeout.
        """
        woken_ms = self.soft.wake_ms
        self.soft = replace(
            self.soft,
            wake_ms=None if woken_ms is None else woken_ms + by_ms,
            members=self.soft.members.updated(
                {
                    one: replace(member_soft, heard_ms=member_soft.heard_ms + by_ms)
                    for one, member_soft in self.soft.members.items()
                }
            ),
        )
        if self._tick_at_ms is not None:
            self._tick_at_ms += by_ms

    def _look_at_poll(self, member_id: MemberId) -> None:
        after, _, respond = self._polls[member_id]
        answer = answer_to_poll(self.group, self.soft, member_id, after, self._policy)
        if answer is None:
            return
        del self._polls[member_id]
        respond(*to_answer(answer))

    def _end_poll(self, member_id: MemberId, number: int) -> None:
        waiting = self._polls.get(member_id)
        if waiting is not None and waiting[1] == number:
            del self._polls[member_id]
            waiting[2](204, None)

    def _tick_at(self, at_ms: int | None) -> None:
        if at_ms is not None and (self._tick_at_ms is None or at_ms < self._tick_at_ms):
            self._tick_at_ms = at_ms
            self._timeline.after(at_ms - self._timeline.now_ms, self._tick)

    def _tick(self) -> None:
        self._tick_at_ms = None
        self.take(Tick())
