"""Cases of the work: what runs when, revocations, fencing, the lease, and going."""

from __future__ import annotations

import asyncio
import time

from batonpass.worker.testing.conformance.cases import Play, case
from batonpass.worker.testing.conformance.cases_talk import beats, needs
from batonpass.worker.testing.conformance.laws import SLACK_S
from batonpass.worker.testing.conformance.stage import SESSION_MS, Broken, Call, Stage, refusal
from batonpass.worker.testing.replies import Reply


def silent_since(stage: Stage, task: str, at: float) -> None:
    """Insist that a task wrote nothing since a time, but for what was on its way.

    Raises:
        Broken: when it did.
    """
    later = stage.wrote(task, since=at + SLACK_S)
    needs(not later, f"task {task} wrote {later[-1].at - at:.2f} s too late" if later else "")


@case("revocation", "A revoked task is confirmed with the epoch that announced it, after it has stopped.")
async def revocation(stage: Stage) -> None:
    """One of two tasks is taken away."""
    await stage.runs("0_0", token=1)
    stage.give("0_1", "active")
    await stage.runs("0_1", token=1)
    epoch = stage.take("0_0")
    confirmed = await stage.confirmed("0_0", epoch)
    await asyncio.sleep(1)
    silent_since(stage, "0_0", confirmed.at)
    needs(confirmed.role_of("0_1") == "active", "the other task is not reported as active any more")
    await stage.runs("0_1", token=1)


@case("demotion", "An active that is to be a standby stops processing before it is reported as one.")
async def demotion(stage: Stage) -> None:
    """Demoted in place."""
    await stage.runs("0_0", token=1)
    epoch = stage.give("0_0", "standby")
    confirmed = await stage.confirmed("0_0", epoch)
    await asyncio.sleep(1)
    silent_since(stage, "0_0", confirmed.at)
    await stage.until(
        lambda: [one for one in stage.of("heartbeat") if one.epoch >= epoch and one.role_of("0_0") == "standby"],
        "0_0 is reported as standby",
    )


@case("promotion", "A warmup is reported with its progress, does not process, and runs once it is promoted.")
async def promotion(stage: Stage) -> None:
    """From warmup to active."""
    await stage.runs("0_0", token=1)
    stage.give("0_1", "warmup")

    def reported() -> Call | None:
        for call in stage.of("heartbeat"):
            entry = (call.tasks or {}).get("0_1")
            if (
                isinstance(entry, dict)
                and entry.get("role") == "warmup"
                and {"lag", "position", "positions"} & set(entry)
            ):
                return call
        return None

    await stage.until(reported, "0_1 is reported as warmup with a lag or a position")
    needs(not stage.wrote("0_1"), "a warmup wrote")
    stage.give("0_1", "active")
    await stage.runs("0_1", token=1)


@case("skipped-epochs", "An assignment that is several epochs ahead revokes and grants at once; both are done.")
async def skipped_epochs(stage: Stage) -> None:
    """A revocation and, an epoch later, a grant reach the member together."""
    await stage.runs("0_0", token=1)
    deaf = True

    async def hold(call: Call) -> Reply | bool | None:
        if call.kind == "poll" and deaf:
            await asyncio.sleep(1)
            return None
        return False

    stage.override = hold
    await asyncio.sleep(0.5)
    stage.take("0_0")
    epoch = stage.give("0_1", "active")
    deaf = False
    confirmed = await stage.confirmed("0_0", epoch)
    await stage.runs("0_1", token=1)
    silent_since(stage, "0_0", confirmed.at)


@case("granted-and-revoked", "A task that came and went between two assignments is given up by a list without it.")
async def granted_and_revoked(stage: Stage) -> None:
    """The member never saw the grant; the coordinator waits for its word all the same."""
    await stage.runs("0_0", token=1)
    await beats(stage, 3)
    stage.seat.roles["0_1"] = "active"
    stage.tokens["0_1"] = 1
    stage.seat.epoch += 1
    epoch = stage.take("0_1")
    await stage.confirmed("0_1", epoch)


@case("newer-token", "A newer token for a running task means that it was another's meanwhile: it starts anew under it.")
async def newer_token(stage: Stage) -> None:
    """The same task under another token."""
    await stage.runs("0_0", token=1)
    stage.give("0_0", "active")
    await stage.runs("0_0", token=2)
    began = await stage.while_(1)
    needs(not stage.wrote("0_0", since=began, token=1), "task 0_0 still writes under its old token")


def _after_refusal(kind: str, status: int, *, on: str) -> Play:
    async def play(stage: Stage) -> None:
        await stage.runs("0_0", token=1)
        old, refused_at = stage.member, 0.0

        async def refuse(call: Call) -> Reply | bool:
            nonlocal refused_at
            if call.member == old and call.kind == on and not refused_at:
                refused_at = time.monotonic()
                stage.seats[old].is_gone = True
                return refusal(kind, status, action="stop-and-rejoin")
            return False

        stage.override = refuse
        if on == "poll":
            # The one that is open is ended, so that the next one can be refused.
            stage.give("0_1", "standby")
        await stage.until(lambda: refused_at, f"a {on} comes")
        join: Call = await stage.until(
            lambda: next((one for one in stage.of("join") if one.member != old), None), "it joins under a new id"
        )
        needs(join.body.get("replaces") == old, f"its join replaces {join.body.get('replaces')!r} and not {old!r}")
        silent_between = [one for one in stage.wrote("0_0", token=1) if one.at > join.at + SLACK_S]
        needs(not silent_between, "task 0_0 still wrote under its old token after the join that vouches for its stop")
        await stage.runs("0_0", token=2)
        later = [one for one in stage.of("heartbeat", member=old) if one.at > join.at + SLACK_S]
        needs(not later, "it still sends heartbeats under its old id")

    return play


for _kind, _status, _on in (
    ("fenced", 409, "heartbeat"),
    ("fenced", 409, "poll"),
    ("gone", 409, "heartbeat"),
    ("unknown-member", 404, "heartbeat"),
):
    case(
        f"{_kind}-{_on}",
        f"Refused with {_kind} on a {_on}, the member stops its actives, then joins with a new id that replaces the old.",
    )(_after_refusal(_kind, _status, on=_on))


@case("taken-over", "Refused with fenced-instance-id, the member stops for good.")
async def taken_over(stage: Stage) -> None:
    """A newer process of the same instance is there."""
    await stage.runs("0_0", token=1)
    refused_at = 0.0

    async def refuse(call: Call) -> Reply | bool:
        nonlocal refused_at
        if call.kind in {"heartbeat", "poll", "join"}:
            refused_at = refused_at or time.monotonic()
            return refusal("fenced-instance-id", 409, action="stop")
        return False

    stage.override = refuse
    await stage.until(lambda: refused_at, "a heartbeat comes")
    await asyncio.sleep(3)
    silent_since(stage, "0_0", refused_at + 0.5)
    later = [call for call in stage.calls if call.at > refused_at + 1]
    needs(not later, f"it still calls: {later[0].target}" if later else "")


def _lease_end(stage: Stage, member: str) -> float:
    """Return when the lease is over at the latest: from when the highest answered heartbeat was first heard."""
    seat = stage.seats[member]
    return seat.first_at[seat.answered_seq] + stage.session_ms / 1_000


@case("lease-over", "When the lease is over every active stops; answered again, it runs on under its token.")
async def lease_over(stage: Stage) -> None:
    """Nothing is answered for longer than the session timeout, and then everything is again."""
    await stage.runs("0_0", token=1)
    await beats(stage, 2)
    member, away = stage.member, True

    async def ignore(call: Call) -> bool | None:
        return None if away and call.kind in {"heartbeat", "poll"} else False

    stage.override = ignore
    await asyncio.sleep(SESSION_MS / 1_000 + 1.5)
    end = _lease_end(stage, member)
    wrote = [one.at for one in stage.wrote("0_0")]
    needs(max(wrote) <= end + SLACK_S, f"task 0_0 wrote {max(wrote) - end:.1f} s after its lease was over")
    needs(
        max(wrote) >= end - SESSION_MS * 0.4 / 1_000,
        f"task 0_0 stopped {end - max(wrote):.1f} s before its lease was over",
    )
    running = [
        call
        for call in stage.of("heartbeat", since=end + SLACK_S)
        if ((call.tasks or {}).get("0_0") or {}).get("state") == "running"
    ]
    needs(not running, "a heartbeat sent after the lease says that 0_0 is running")
    away = False
    await stage.runs("0_0", token=1)
    needs(len(stage.of("join")) == 1, "it joined anew though nobody refused it")


@case("poll-renews-nothing", "A long-poll's answer neither renews the lease nor starts anything while it is over.")
async def poll_renews_nothing(stage: Stage) -> None:
    """Heartbeats go unanswered while long-polls work, and bring a grant after the end of the lease."""
    await stage.runs("0_0", token=1)
    await beats(stage, 2)
    member, away = stage.member, True

    async def ignore(call: Call) -> bool | None:
        return None if away and call.kind == "heartbeat" else False

    stage.override = ignore
    await asyncio.sleep(SESSION_MS / 2_000)
    stage.give("0_2", "standby")
    await asyncio.sleep(SESSION_MS / 2_000 + 1)
    end = _lease_end(stage, member)
    late = [one for one in stage.wrote("0_0") if one.at > end + SLACK_S]
    needs(not late, "task 0_0 wrote after its lease was over: the long-poll seems to have renewed it")
    stage.give("0_1", "active")
    await asyncio.sleep(1.5)
    needs(not stage.wrote("0_1"), "task 0_1 was started by a long-poll's answer while the lease was over")
    away = False
    await stage.runs("0_1", token=1)
    await stage.runs("0_0", token=1)


@case(
    "lease-from-first-sending", "The lease counts from when an answered heartbeat was first sent, never from a retry."
)
async def lease_from_first_sending(stage: Stage) -> None:
    """A heartbeat is answered only when it comes again, a good while later; then nothing is answered any more."""
    stage.interval_ms, stage.session_ms = 3_500, 7_000
    await stage.runs("0_0", token=1)
    await beats(stage, 1)
    member, first, answered = stage.member, 0.0, 0.0

    async def late(call: Call) -> bool | None:
        nonlocal first, answered
        if call.kind == "poll":
            return None
        if call.kind != "heartbeat":
            return False
        first = first or call.at
        if not answered and call.at - first > 1.0:
            answered = call.at
            return False
        return None

    stage.override = late
    await stage.until(lambda: answered, "a heartbeat that was not answered is repeated, or another one sent")
    end = _lease_end(stage, member)
    await asyncio.sleep(max(0.0, end - time.monotonic()) + 1.2)
    last = max(one.at for one in stage.wrote("0_0"))
    needs(last <= end + SLACK_S, f"task 0_0 wrote {last - end:.1f} s after its lease was over")


@case("goodbye", "Told to go, a member stops its actives before it says so.")
async def goodbye(stage: Stage) -> None:
    """SIGTERM."""
    await stage.runs("0_0", token=1)
    stage.stop_client()
    leave: list[Call] = await stage.until(lambda: stage.of("leave"), "it says goodbye with DELETE after SIGTERM")
    mode = leave[0].query.get("mode", "leave")
    needs(mode in {"leave", "restart"}, f"it leaves with the mode {mode!r}")
    await asyncio.sleep(1)
    silent_since(stage, "0_0", leave[0].at)
    end = time.monotonic() + 10
    while not stage.client_ended():
        if time.monotonic() > end:
            raise Broken("its process has not ended 10 s after its goodbye")
        await asyncio.sleep(0.05)
