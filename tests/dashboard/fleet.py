"""A group of any size in the shapes in which a coordinator tells of it.

Every body is held against the schemas of the package by `test_canned.py`, so the shapes cannot drift from the truth.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from batonpass.core.state.policy import GroupConfig
from batonpass.explain.remedies import HELP

PARTS: Final = ("orders", "stock", "clicks", "prices")
NOW: Final = datetime(2026, 11, 20, 3, 4, 5, tzinfo=UTC)


def at(seconds: float = 0.0) -> str:
    """Return an instant so many seconds after (or before) the hour at which everything here is described."""
    return (NOW + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def member(name: str, active: list[str], standby: list[str], **more: Any) -> dict[str, Any]:
    """Return a member that is well: everything runs, and every standby has caught up."""
    reports: dict[str, Any] = {
        task: {"role": "active", "lag": None, "at": at(-1), "state": "running"} for task in active
    }
    reports |= {task: {"role": "standby", "lag": 0, "at": at(-1), "position": 900} for task in standby}
    return {
        "member_id": name,
        "instance_id": name,
        "member_epoch": 2,
        "state": "stable",
        "capacity": 1.0,
        "max_tasks": None,
        "max_disk_bytes": 50_000,
        "client_tags": {"zone": "abc"[len(active) % 3]},
        "topology_epoch": 1,
        "on_lease_lost": "stop",
        "endpoint": None,
        "joined_at": at(-600),
        "last_heard_at": at(-1),
        "draining": False,
        "drain_deadline_at": None,
        "kept_out": None,
        "suspected": False,
        "silent": False,
        "away_until": None,
        "distrusted_until": None,
        "faults": "",
        "assignment": {
            "active": [{"task": task, "fencing_token": 1} for task in active],
            "standby": standby,
            "warmup": [],
        },
        "revoking": [],
        "disk_bytes": 12_300,
        "reports": reports,
    } | more


def warm(one: dict[str, Any], task: str, lag: int | None, rate: float | None = 100.0) -> None:
    """Have a member warm a task up."""
    one["assignment"]["warmup"].append(task)
    report = {"role": "warmup", "lag": lag, "at": at(-1)}
    one["reports"][task] = report | ({"records_per_second": rate} if rate is not None else {})


def _wait(what: str, who: str | None, detail: str) -> dict[str, Any]:
    return {"what": what, "member": who, "until": None, "eta_ms": None, "detail": detail}


def event(position: int, kind: str, seconds: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return an event; what is neither `member`, `task`, `group` nor `generation` is its body."""
    named = {name: more.pop(name, None) for name in ("member", "task")}
    group, generation = more.pop("group", "fleet"), more.pop("generation", 3)
    return {
        "position": position,
        "group": group,
        "type": kind,
        "at": at(seconds),
        "generation": generation,
        **named,
        "body": more,
    }


@dataclass
class Fleet:
    """A group of so many members and tasks, in which a little of everything is going on."""

    members: list[dict[str, Any]]
    tasks: list[str]
    group: str = "fleet"
    failed: str = ""
    waiting: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, members: int, tasks: int) -> "Fleet":
        """Return a group with one silent member, one that drains, two warmups, a failed task and one without owner."""
        each = tasks // len(PARTS)
        names = [f"{part}_{number}" for part in PARTS for number in range(each)]
        waiting = names[-1:]
        dealt = names[:-1]
        found = [
            member(f"worker-{place + 1}", dealt[place::members], dealt[(place + 1) % members :: members])
            for place in range(members)
        ]
        found[-1]["suspected"] = found[-1]["silent"] = True
        found[-1]["last_heard_at"] = at(-30)
        found[-2]["draining"] = True
        warm(found[0], dealt[2], 12_000)
        warm(found[1], dealt[3], None, None)
        failed = found[2]["assignment"]["active"][0]["task"]
        found[2]["reports"][failed] |= {"state": "failed", "detail": "disk <full>"}
        joined: dict[str, Any] = {
            "capacity": 1.0,
            "max_tasks": None,
            "max_disk_bytes": None,
            "client_tags": {},
            "endpoint": None,
            "on_lease_lost": "stop",
        }
        moved = {"stopped_at": at(-49.5), "granted_at": at(-49.4), "fencing_token": 2}
        warm_up = {"from": "worker-3", "warm": True, "gap_ms": 38, "cause": "revoked"}
        unseen = {"gap_is_lower_bound": True, "gap_at_most_ms": 19_000}
        cold = {"from": "worker-9", "warm": False, "gap_ms": 9_000, "cause": "expired"} | unseen
        events = [
            event(1, "member-joined", -600, member="worker-1", instance_id="worker-1", in_place_of=None, **joined),
            event(2, "warmup-started", -60, member="worker-1", task=dealt[2], owner="worker-3"),
            event(3, "handover-done", -50, member="worker-2", task=dealt[1], **warm_up, **moved),
            event(4, "takeover-done", -40, member="worker-1", task=dealt[0], **cold, **moved),
            event(5, "member-suspected", -28, member=found[-1]["member_id"], running=9),
        ]
        return cls(found, names, failed=failed, waiting=waiting, events=events)

    def group_get(self) -> dict[str, Any]:
        """Return the group."""
        each = len(self.tasks) // len(PARTS)
        parts = [
            {
                "id": part,
                "partitions": each,
                "stateful": True,
                "weight": 1.0,
                "source_topics": [part],
                "changelog_topics": [f"{part}-store"],
            }
            for part in PARTS
        ]
        held = [{"task": task, "to": None, "reason": "no-eligible-member"} for task in self.waiting]
        return self.summary() | {
            "detail": "",
            "topology": {"epoch": 1, "subtopologies": parts},
            "config": asdict(GroupConfig(acceptable_recovery_lag=100, num_standby_replicas=1))
            | {"rack_aware_tags": []},
            "eta_ms": 119_000,
            "next_probe_at": at(20),
            "held_back": held,
            "held_back_by_reason": {"no-eligible-member": len(held)} if held else {},
            "pause": None,
            "storm_since": None,
            "kept_out": [],
            "storm_ends_at": None,
            "warnings": [],
        }

    def summary(self) -> dict[str, Any]:
        """Return the group as one of the list."""
        return {
            "group": self.group,
            "state": "balancing",
            "group_epoch": 3,
            "generation": 3,
            "members": len(self.members),
            "tasks": len(self.tasks),
            "paused": False,
            "at_rest": False,
            "warmups": 2,
            "moves_pending": 3,
            "health": self.health(),
            "application": None,
        }

    def health(self) -> dict[str, Any]:
        """Return how the group is: a task failed, and one has no owner."""
        cause = {
            "task": self.failed,
            "member": "worker-3",
            "instance_id": "worker-3",
            "at": at(-28),
            "detail": "disk <full>",
        }
        lost = {
            "task": None,
            "member": "worker-9",
            "instance_id": "worker-9",
            "at": at(-40),
            "detail": "its lease ran out",
        }
        failed = HELP["task-failed"]
        return {
            "level": "trouble",
            "what": "not-processed",
            "sentence": f"2 of {len(self.tasks):,} tasks are not processed: 1 failed, 1 without an owner.",
            "since": at(-270),
            "until": None,
            "ends": "when it is mended",
            "evidence": f"{len(self.members) - 1} of {len(self.members)} members heard within 1 s",
            "heard": len(self.members) - 1,
            "judged_from": None,
            "tasks": self.states(),
            "unknown": 9,
            "cause": cause,
            "incident": lost,
            "todo": f"{failed.todo.format(name='worker-3')} {HELP['without-place'].todo}",
            "remedies": [],
            "more_remedies": 0,
            "runbook": failed.runbook,
            "others": [self._silent()] if self.members else [],
        }

    def _silent(self) -> dict[str, Any]:
        """Return that the last member is silent."""
        name, silent = self.members[-1]["member_id"], HELP["silent"]
        return {
            "level": silent.level.value,
            "what": "silent",
            "sentence": f"Member {name} has fallen silent.",
            "since": at(-30),
            "until": at(15),
            "ends": "its lease",
            "cause": None,
            "todo": silent.todo.format(name=name, span="15 s", detail="go to worker-1"),
            "remedies": [
                {"action": "evict", "member": name, "task": None, "command": silent.command(self.group, name)}
            ],
            "more_remedies": 2,
            "runbook": silent.runbook,
        }

    def states(self) -> dict[str, int]:
        """Return how many tasks are in each state."""
        states = Counter({"running": len(self.tasks) - 4, "warming": 2, "failed": 1, "waiting": len(self.waiting)})
        return {name: amount for name, amount in states.items() if amount}

    def explain(self) -> dict[str, Any]:
        """Return the explanation of the group."""
        silent = self.members[-1]["member_id"]
        return {
            "group": self.group,
            "state": "balancing",
            "detail": "",
            "at_rest": False,
            "group_epoch": 3,
            "generation": 3,
            "health": self.health(),
            "sentences": [
                self.health()["sentence"],
                "3 tasks still to move.",
                "1 task is held back: no member may take it; start workers, or undrain one.",
            ],
            "tasks": self.states(),
            "moves_pending": 3,
            "application": None,
            "eta_ms": 119_000,
            "next_probe_at": at(20),
            "next_placement_at": None,
            "triggers": [],
            "pause": None,
            "storm_since": None,
            "kept_out": [],
            "storm_ends_at": None,
            "grants_held_until": None,
            "judges_from": None,
            "budgets": {
                "warmups": {"used": 2, "limit": 2},
                "drain_warmups": {"used": 0, "limit": 2},
                "warmups_per_member": {"limit": 2, "full": []},
            },
            "members": [
                {"member": silent, "what": "suspected", "tasks": 9, "since": at(-28), "until": None, "detail": "silent"}
            ],
            "held_back": self.group_get()["held_back"],
            "held_back_by_reason": self.group_get()["held_back_by_reason"],
            "waiting": [
                {
                    "task": task,
                    "state": state,
                    "held_back": None,
                    "waits_for": [wait],
                }
                for task, state, wait in (
                    (self.failed, "failed", _wait("report", "worker-3", "it failed there")),
                    *((one, "waiting", _wait("member", None, "no member may take it")) for one in self.waiting),
                )
            ],
            "waiting_total": 1 + len(self.waiting),
        }

    def assignment(self) -> dict[str, Any]:
        """Return where tasks belong: where they are."""
        held = {
            one["member_id"]: {
                "active": [grant["task"] for grant in one["assignment"]["active"]],
                "standby": one["assignment"]["standby"],
            }
            for one in self.members
        }
        return {
            "group": self.group,
            "generation": 3,
            "target": held,
            "intermediate": {name: roles | {"warmup": []} for name, roles in held.items()},
            "current": {
                one["member_id"]: held[one["member_id"]] | {"warmup": one["assignment"]["warmup"]}
                for one in self.members
            },
            "revoking": {},
        }

    def generation(self) -> dict[str, Any]:
        """Return the generation that gave the second task another owner."""
        return {
            "generation": 3,
            "group_epoch": 3,
            "at": at(-60),
            "triggers": ["join"],
            "members": len(self.members),
            "tasks": len(self.tasks),
            "moves": 1,
            "lower_bound": 1,
            "warmups": 0,
            "imbalance": {"before": 2.0, "after": 0.0},
            "decide_ms": 2.4,
            "reasons": [{"code": "stays", "task": None, "to": None, "detail": "", "tasks": len(self.tasks) - 1}],
            "diff": [
                {
                    "task": self.tasks[1],
                    "from": "worker-3",
                    "to": "worker-2",
                    "standbys_before": ["worker-2"],
                    "standbys": ["worker-1"],
                    "why": "balance",
                }
            ],
        }

    def plan(self) -> dict[str, Any]:
        """Return what would come of one more member, which takes the first task."""
        first, *others = self.members
        task = first["assignment"]["active"][0]["task"]
        roles = {
            one["member_id"]: {"active": [grant["task"] for grant in one["assignment"]["active"]], "standby": []}
            for one in others
        }
        rest = [grant["task"] for grant in first["assignment"]["active"][1:]]
        target = roles | {
            first["member_id"]: {"active": rest, "standby": []},
            "join-1": {"active": [task], "standby": []},
        }
        return {
            "target": target,
            "assignment": {member_id: held | {"warmup": []} for member_id, held in target.items()},
            "moves": 1,
            "lower_bound": 1,
            "at_rest": False,
            "probing_needed": True,
            "decide_ms": 1.7,
            "held_back": [],
            "reasons": [{"task": task, "code": "warming", "detail": ""}],
            "balance": {"before": {"least": 9.0, "most": 10.0}, "after": {"least": 1.0, "most": 10.0}},
        }

    def task(self, name: str) -> dict[str, Any]:
        """Return a task with two runs."""
        first = {
            "member": "worker-3",
            "fencing_token": 1,
            "generation": 1,
            "granted_at": at(-600),
            "running_at": at(-599),
            "gap_is_lower_bound": False,
        }
        second = {
            "member": "worker-2",
            "fencing_token": 2,
            "generation": 2,
            "granted_at": at(-50),
            "running_at": at(-49),
            "gap_is_lower_bound": False,
        }
        return {
            "group": self.group,
            "generation": 3,
            "task": name,
            "stateful": True,
            "weight": 1.0,
            "state": "running",
            "owner": "worker-2",
            "endpoint": None,
            "since": at(-50),
            "fencing_token": 2,
            "target": "worker-2",
            "target_standbys": ["worker-1"],
            "to": "worker-2",
            "why": "stays",
            "held_back": None,
            "copies": [],
            "waits_for": [],
            "stopped": None,
            "pin": None,
            "parked": False,
            "failures": [],
            "sentences": [f"worker-2 runs {name}."],
            "last_placement": None,
            "runs": [
                second | {"stopped_at": None, "ended": None, "warm": True, "why": "handover", "gap_ms": 38},
                first | {"stopped_at": at(-49.5), "ended": "revoked", "warm": False, "why": "no-owner", "gap_ms": None},
            ],
            "history": [],
        }


AUDIT: Final[dict[str, Any]] = {
    "day": "2026-11-19",
    "state": "failed",
    "verdict": "failed",
    "started_at": at(-3_600),
    "finished_at": at(-3_000),
    "groups": 1,
    "records": 12_345,
    "fatal": 1,
    "notices": 0,
    "detail": "",
    "code_version": "0.1.0",
    "report": "/var/lib/reports/2026-11-19.html",
    "findings": [
        {
            "number": 1,
            "group": "fleet",
            "law": "L1",
            "severity": "fatal",
            "task": "orders_1",
            "member": "worker-1",
            "detail": "two members ran <orders_1> at once",
            "evidence": {"sequences": [7, 8], "at": [at(-9_000), at(-8_999)]},
        }
    ],
    "next": None,
    "measures": {"fleet": {"availability": 0.999, "handovers": 12, "balance_mean": None}},
    "downtime_by_cause": {
        "fleet": {"failover": {"count": 2, "p50_ms": 90.0, "p99_ms": 120.0, "max_ms": 120.0, "total_ms": 210.0}}
    },
    "recommendations": {
        "fleet": {
            "group": "fleet",
            "present": {"settings": {"num_standby_replicas": 0}, "downtime_ms": 9_000, "moves": 4, "bytes": None},
            "recommended": {"settings": {"num_standby_replicas": 1}, "downtime_ms": 200, "moves": 4, "bytes": None},
            "confidence": "Of 12 handovers.",
            "grid": [],
        }
    },
}
"""What the audit of a day came to."""
