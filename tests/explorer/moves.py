"""What can happen next in a world: each move with its words, what it costs, and what it does.

What costs nothing can happen at any time, or never: a message arrives, a timer fires, a worker finishes what it was
told. A process that is frozen is one that does nothing for a while, so it needs no move. What goes wrong costs
something from the world's budget, which a scenario gives. Time passes once everybody has done what was due; that
somebody is silent meanwhile has its price too.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from tests.explorer.world import AT_END, MOMENT_MS, UNIT_MS, Message, World

from batonpass.core.arrivals.answers import answer_to_poll
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import Input, PollBroken, PollOpened, ReleaseRequest, Started, Tick
from batonpass.core.state.replies import Reply
from batonpass.simulate.wire import to_answer, to_input
from batonpass.worker.protocol import LeaveMode, Phase, RequestKind, Role, Stage

TIME = "units"


class Move(NamedTuple):
    """``words`` are unlike those of every other move of the same world; ``costs`` is empty if it costs nothing."""

    words: str
    act: Callable[[World], object]
    costs: tuple[str, ...] = ()


def moves(world: World) -> Iterator[Move]:
    """Yield what can happen now."""
    for number, message in enumerate(world.wire):
        yield from _of_message(world, message, number)
    for name in world.workers:
        yield from _of_worker(world, name)
    yield from _of_coordinators(world)
    yield from _of_time(world)
    for name in world.workers:
        yield from _of_drain(world, name)


def doing(act: Callable[..., object], *arguments: object, **named: object) -> Callable[[World], object]:
    """Return an act upon a world with these arguments."""
    return lambda world: act(world, *arguments, **named)


def after(world: World, move: Move) -> World:
    """Return the world after a move."""
    changed = world.copy(move.costs)
    move.act(changed)
    changed.check_workers()
    return changed


def _allowed(world: World, *chosen: Move) -> Iterator[Move]:
    return (move for move in chosen if all(world.budget.get(each, 0) > 0 for each in move.costs))


# --- messages -------------------------------------------------------------------------------------------------------


def _of_message(world: World, message: Message, number: int) -> Iterator[Move]:
    words = message.words + " (another)" * [each.words for each in world.wire[:number]].count(message.words)
    if message.status:
        yield Move(f"{words} arrives", doing(_arrive, message))
        faults = [Move(f"{words} arrives, and will once more", doing(_arrive, message, stays=True), ("wire",))]
    elif message.request.kind is RequestKind.POLL:
        yield from _of_poll(world, message)
        return
    else:
        for index, one in enumerate(world.coordinators):
            by = "" if one.leads else " at the coordinator before"
            yield Move(f"{words} arrives{by}", doing(_hear, message, index))
        last = len(world.coordinators) - 1
        faults = [
            Move(
                f"{words} arrives, and will once more",
                doing(_hear, message, last, stays=True),
                ("wire",),
            ),
            Move(
                f"{words} arrives, and its answer is late",
                doing(_hear, message, last, late=True),
                ("wire",),
            ),
            Move(
                f"{words} arrives, and the coordinator dies before it answers",
                doing(_hear_and_die, message),
                ("crashes",),
            ),
        ]
    machine = world.workers[message.worker].machine
    if machine is not None and message.is_waited_for_by(machine):
        faults.append(Move(f"{message.worker} waits no longer for {words}", doing(_give_up, message), ("wire",)))
    yield from _allowed(world, *faults)


def _of_poll(world: World, poll: Message) -> Iterator[Move]:
    """A long-poll waits at the coordinator that leads; when it breaks, the next one is what the coordinator sees."""
    member, leader = MemberId(poll.request.member_id), world.leader
    known = leader.soft.members.get(member)
    if known is not None and known.poll_broken_ms is not None:
        yield Move(f"{poll.words} arrives", doing(_lead, PollOpened(member)))
    else:
        answer = answer_to_poll(leader.group, leader.soft, member, int(poll.request.query["after"]))
        if answer is not None:
            yield Move(f"{poll.words} is answered", doing(_answer_poll, poll, answer))
        broken = Move(f"{poll.words} breaks", doing(_break_poll, poll), (f"{poll.worker} breaks",))
        yield from _allowed(world, broken)


def _answer_poll(world: World, poll: Message, answer: Reply) -> None:
    _without(world, poll)
    status, body = to_answer(answer)
    world.wire = (*world.wire, poll._replace(status=status, body=body))


def _break_poll(world: World, poll: Message) -> None:
    _lead(world, PollBroken(MemberId(poll.request.member_id)))
    world.tell(poll.worker, "on_no_answer", poll.request)


def _without(world: World, message: Message, *, stays: bool = False) -> None:
    """Take a message off the wire, or keep it as one that may still arrive."""
    wire = list(world.wire)
    wire.remove(message)
    world.wire = (*wire, message._replace(late=True)) if stays else tuple(wire)


def _arrive(world: World, message: Message, *, stays: bool = False) -> None:
    _without(world, message, stays=stays)
    world.tell(message.worker, "on_answer", message.request, message.status, message.body)


def _hear(world: World, message: Message, index: int, *, stays: bool = False, late: bool = False) -> None:
    """Let a coordinator hear a request. An answer without news is there at once, unless it is to be late."""
    _without(world, message, stays=stays)
    item = to_input(message.request)
    answered = world.decide(index, item) if item is not None else None
    worker = world.workers[message.worker]
    if worker.machine is None or worker.process != message.process:
        return
    if answered is None:
        world.tell(message.worker, "on_no_answer", message.request)
        return
    status, body = answered
    if status < 300 and not (body and (body.get("assignment") or body.get("report"))) and not late:
        world.tell(message.worker, "on_answer", message.request, status, body)
    else:
        world.wire = (*world.wire, message._replace(status=status, body=body, late=message.late or late))


def _hear_and_die(world: World, message: Message) -> None:
    _hear(world, message, len(world.coordinators) - 1)
    _restart(world)


def _give_up(world: World, message: Message) -> None:
    _without(world, message, stays=True)
    world.tell(message.worker, "on_no_answer", message.request)


# --- workers --------------------------------------------------------------------------------------------------------


def _of_worker(world: World, name: str) -> Iterator[Move]:
    worker = world.workers[name]
    machine = worker.machine
    if machine is None:
        if not worker.left:
            yield Move(f"{name} starts", doing(World.boot, name))
        return
    wake_ms = machine.wake_at_ms
    if wake_ms is not None and wake_ms <= world.now_ms:
        yield Move(f"{name}'s timer fires", doing(World.tell, name, "tick"))
    for task, holding in machine.holdings.items():
        if holding.stopping is not None:
            yield Move(f"{name} has stopped {task}", doing(World.stop, name, task))
        elif holding.role is not Role.ACTIVE:
            if holding.progress != AT_END:
                yield Move(
                    f"{name} catches up on {task}",
                    doing(World.tell, name, "copy_progress", task, AT_END),
                )
        elif holding.stage is Stage.RESTORING:
            yield Move(f"{name} runs {task}", doing(_run, name, task))
        if holding.role is Role.ACTIVE and holding.stage is not Stage.FAILED:
            yield from _allowed(
                world,
                Move(
                    f"{name} fails {task}",
                    doing(World.tell, name, "task_failed", task, "a poison record"),
                    (f"{name} fails",),
                ),
            )
        elif holding.role is Role.ACTIVE:
            yield Move(f"{name} recovers {task}", doing(World.tell, name, "task_restoring", task))
    is_joined = machine.phase is Phase.JOINED
    has_active = any(holding.role is Role.ACTIVE for holding in machine.holdings.values())
    wishes = [
        Move(f"{name} dies", doing(World.end, name), (f"{name} dies",)),
        Move(
            f"{name} runs out of memory",
            doing(World.end, name),
            (f"{name} out of memory",) if has_active else ("-",),
        ),
        Move(
            f"{name} is to drain",
            doing(World.tell, name, "drain"),
            (f"{name} drains",) if is_joined else ("-",),
        ),
        Move(
            f"{name} is to drain within a unit",
            doing(World.tell, name, "drain", deadline_ms=UNIT_MS),
            (f"{name} drains soon",) if is_joined else ("-",),
        ),
        Move(
            f"{name} leaves",
            doing(_leave, name, LeaveMode.LEAVE),
            (f"{name} leaves",) if is_joined else ("-",),
        ),
        Move(
            f"{name} leaves to restart",
            doing(_leave, name, LeaveMode.RESTART),
            (f"{name} restarts",) if is_joined else ("-",),
        ),
    ]
    yield from _allowed(world, *wishes)


def _run(world: World, name: str, task: str) -> None:
    world.tell(name, "copy_progress", task, AT_END)
    world.tell(name, "task_running", task)


def _leave(world: World, name: str, mode: LeaveMode) -> None:
    world.workers[name] = replace(world.workers[name], left=mode is LeaveMode.LEAVE)
    world.tell(name, "leave", mode=mode)


def _of_drain(world: World, name: str) -> Iterator[Move]:
    """A drain is called off last of all, because a search for rest takes the first way that there is."""
    machine = world.workers[name].machine
    member = world.leader.group.members.get(MemberId(machine.member_id or "")) if machine else None
    if machine is not None and machine.phase is Phase.JOINED and member is not None and member.drain is not None:
        undrain = Move(f"{name} is to stay after all", doing(World.tell, name, "undrain"), (f"{name} stays",))
        yield from _allowed(world, undrain)


# --- coordinators and time ------------------------------------------------------------------------------------------


def _lead(world: World, item: Input) -> None:
    world.decide(len(world.coordinators) - 1, item)


def _of_coordinators(world: World) -> Iterator[Move]:
    for index, one in enumerate(world.coordinators):
        if one.soft.wake_ms is not None and one.soft.wake_ms <= world.now_ms:
            by = "the coordinator" if one.leads else "the coordinator before"
            yield Move(f"{by} looks what is due", doing(World.decide, index, Tick()))
    for task, state in world.leader.group.tasks.items():
        if state.marks.parked:
            yield Move(f"an operator releases {task}", doing(_lead, ReleaseRequest(task)))
    yield from _allowed(
        world,
        Move("the coordinator restarts", _restart, ("crashes",)),
        Move("another coordinator takes over", _take_over, ("takeovers",)),
    )


def _restart(world: World) -> None:
    world.start_coordinator(others_live=False)
    _lead(world, Started())


def _take_over(world: World) -> None:
    world.start_coordinator(others_live=True)
    _lead(world, Started())


def _of_time(world: World) -> Iterator[Move]:
    """Time passes once everybody has done what was due, unless somebody may be silent, or stuck."""
    silent = tuple(name for name in world.workers if _is_busy(world, name))
    leader = world.leader.soft
    is_stuck = leader.wake_ms is not None and leader.wake_ms <= world.now_ms
    who = [*silent, *(["the coordinator"] if is_stuck else [])]
    words = f"time passes{', without a word of ' if who else ''}{' and '.join(who)}"
    yield from _allowed(world, Move(words, _pass, (TIME, *(f"{each} is silent" for each in who))))


def _is_busy(world: World, name: str) -> bool:
    """Whether a worker has something due, or is to hear something."""
    machine = world.workers[name].machine
    if machine is None:
        return False
    wake_ms = machine.wake_at_ms
    if (wake_ms is not None and wake_ms <= world.now_ms) or any(each.is_waited_for_by(machine) for each in world.wire):
        return True
    return any(True for each in world.wire if each.is_open_poll_of(name) for _ in _of_poll(world, each))


def _pass(world: World) -> None:
    world.now_ms += UNIT_MS + MOMENT_MS // 10
