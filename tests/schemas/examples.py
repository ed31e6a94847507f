"""The example bodies of PROTOCOL.md as they stand there; an ellipsis is filled in as the text around it says."""

from __future__ import annotations

from collections.abc import Mapping

from tests.schemas.history_examples import HISTORY_EXAMPLES

GROUP_PUT = {
    "topology": {
        "epoch": 1,
        "subtopologies": [
            {
                "id": "0",
                "partitions": 8,
                "stateful": True,
                "weight": 1.0,
                "task_weights": {"0_3": 5.0},
                "source_topics": ["orders"],
                "changelog_topics": ["orders-store-changelog"],
            }
        ],
    },
    "config": {"acceptable_recovery_lag": 1000, "max_warmup_replicas": 4},
}

GROUP_GET = {
    "group": "orders",
    "state": "balancing",
    "group_epoch": 12,
    "generation": 9,
    "topology": GROUP_PUT["topology"],
    "config": GROUP_PUT["config"],
    "members": 3,
    "tasks": 8,
    "paused": False,
    "at_rest": False,
    "warmups": 2,
    "moves_pending": 3,
    "eta_ms": 41000,
    "next_probe_at": "2026-03-01T12:00:00.000Z",
    "held_back": [{"task": "0_5", "to": "m3", "reason": "warmup-budget"}],
}

JOIN = {
    "instance_id": "orders-0",
    "takeover": False,
    "replaces": None,
    "capacity": 4,
    "max_tasks": 40,
    "max_disk_bytes": 50_000_000_000,
    "client_tags": {"zone": "a"},
    "topology_epoch": 1,
    "on_lease_lost": "stop",
    "endpoint": "http://10.0.0.7:9000",
    "tasks": {"0_3": {"role": "none", "position": 812, "end_offset": 900}},
}

HEARTBEAT = {
    "seq": 118,
    "member_epoch": 12,
    "tasks": {
        "0_1": {"role": "active", "state": "running", "input_lag": 40},
        "0_2": {"role": "active", "state": "restoring", "position": 5, "end_offset": 70},
        "0_3": {"role": "warmup", "position": 812, "end_offset": 900},
        "0_4": {"role": "standby", "lag": 0, "disk_bytes": 70},
        "0_7": {"role": "none", "final_position": 905, "position": 905},
    },
}

MEMBER_ANSWER = {
    "member_id": "a6f1",
    "seq": 118,
    "member_epoch": 13,
    "generation": 9,
    "heartbeat_interval_ms": 3000,
    "session_timeout_ms": 45000,
    "acceptable_recovery_lag": 1000,
    "acceptable_catchup_ms": None,
    "report": None,
    "assignment": {
        "active": [{"task": "0_1", "fencing_token": 41, "restore_to": 905}],
        "standby": ["0_4"],
        "warmup": ["0_3"],
    },
    "status": [],
}

PAUSE = {"scope": "all", "reason": "deploy", "expires_at": "2026-03-01T12:00:00Z"}

PIN = {"member": "m1"}

PLAN_REQUEST = {
    "join": [{"capacity": 4, "count": 2}],
    "leave": ["m1"],
    "drain": ["m2"],
    "config": {"num_standby_replicas": 1},
}

SNAPSHOT = {
    "config": {"max_warmup_replicas": 2, "num_standby_replicas": 1, "acceptable_recovery_lag": 100},
    "tasks": [{"id": "0_0", "stateful": True, "weight": 1.0}],
    "members": [
        {
            "id": "m1",
            "capacity": 1,
            "client_tags": {},
            "draining": False,
            "tasks": {"0_0": {"role": "active", "state": "running"}, "0_1": {"role": "standby", "lag": 10}},
        }
    ],
}

SNAPSHOT_ANSWER = {
    "target": {"m1": {"active": ["0_0"], "standby": []}},
    "assignment": {"m1": {"active": ["0_0"], "standby": [], "warmup": []}},
    "moves": 0,
    "lower_bound": 0,
    "at_rest": True,
    "probing_needed": False,
    "decide_ms": 0.4,
    "held_back": [],
    "reasons": [{"task": "0_0", "code": "stays", "detail": "…"}],
}

PROBLEM = {
    "type": "fenced",
    "title": "The member is fenced",
    "status": 409,
    "detail": "member a6f1 is fenced: its lease ran out",
    "action": "stop-and-rejoin",
}

# The table of errors: type, its statuses, what the member should do.
PROBLEMS: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("unknown-group", (404,), "fix"),
    ("unknown-member", (404,), "stop-and-rejoin"),
    ("not-found", (404,), "fix"),
    ("gone", (409,), "stop-and-rejoin"),
    ("fenced", (409,), "stop-and-rejoin"),
    ("fenced-instance-id", (409,), "stop"),
    ("stale-member-epoch", (409,), "retry"),
    ("instance-id-in-use", (409,), "retry"),
    ("invalid-topology", (422,), "fix"),
    ("invalid-config", (422,), "fix"),
    ("invalid-request", (422,), "fix"),
    ("group-not-empty", (409,), "fix"),
    ("not-safe-to-stop", (409,), "retry"),
    ("precondition-required", (428,), "fix"),
    ("precondition-failed", (412,), "fix"),
    ("method-not-allowed", (405,), "fix"),
    ("limit-exceeded", (413, 429), "retry"),
    ("unauthenticated", (401,), "fix"),
    ("forbidden", (403,), "fix"),
    ("store-unavailable", (503,), "retry"),
    ("coordinator-loading", (503,), "retry"),
)

EXAMPLES: dict[str, Mapping[str, object]] = {
    "group_put": GROUP_PUT,
    "group_get": GROUP_GET,
    "join": JOIN,
    "heartbeat": HEARTBEAT,
    "member_answer": MEMBER_ANSWER,
    "pause": PAUSE,
    "pin": PIN,
    "plan_request": PLAN_REQUEST,
    "snapshot": SNAPSHOT,
    "snapshot_answer": SNAPSHOT_ANSWER,
    "problem": PROBLEM,
    "kafka_heartbeat": {"kind": "heartbeat", "member": "a6f1", **HEARTBEAT},
    "kafka_ack": {"a6f1": 118},
    "command": {"reason": "node drain"},
    "scenario": {
        "scenario": 1,
        "title": "A worker dies",
        "config": {"num_standby_replicas": 1},
        "tasks": [{"partitions": 8, "records": 100000, "rate": [1, 2, 3, 4, 5, 6, 7, 8]}],
        "members": [{"name": "worker", "count": 3, "tags": {"zone": ["a", "b"]}}],
        "timeline": [
            {"at": "1m", "crash": "worker-1", "back": "90s", "disk": "lost"},
            {"at": "1h30m", "load": 2.5, "for": "10m"},
        ],
        "until": "2h",
    },
    "assignment_get": {
        "target": {"m1": {"active": ["0_0"], "standby": []}},
        "intermediate": {"m1": {"active": ["0_0"], "standby": [], "warmup": ["0_1"]}},
        "current": {"m1": {"active": ["0_0"], "standby": [], "warmup": []}},
    },
    "member_get": {
        "member_id": "a6f1",
        "instance_id": None,
        "member_epoch": 13,
        "capacity": 4,
        "max_tasks": None,
        "max_disk_bytes": None,
        "client_tags": {"zone": "a"},
        "topology_epoch": 1,
        "on_lease_lost": "stop",
        "endpoint": None,
        "assignment": MEMBER_ANSWER["assignment"],
    },
    "advice": {
        "group": "app",
        "generation": 2,
        "mode": "assign",
        "assignment": {"a": {"active": ["0_0"], "standby": [], "warmup": []}},
        "followup_ms": None,
        "followup_everyone": False,
        "at_rest": True,
        "moves": 0,
        "lower_bound": 0,
        "held_back": [],
        "reasons": [],
    },
    "plan_answer": {
        "moves": 1,
        "lower_bound": 1,
        "bytes": None,
        "balance": {"before": {}, "after": {}},
        "assignment": {"m1": {"active": ["0_0"], "standby": [], "warmup": []}},
    },
    **HISTORY_EXAMPLES,
}
