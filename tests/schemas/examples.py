"""A body for each schema: those that docs/protocol.md shows, and others."""

from collections.abc import Mapping

from tests.protocol_page import BODIES
from tests.schemas.history_examples import AT, HISTORY_EXAMPLES, LATER

GROUP_PUT = BODIES["group_put"]
HEARTBEAT = BODIES["heartbeat"]
MEMBER_ANSWER = BODIES["member_answer"]
PROBLEM = BODIES["problem"]

EXAMPLES: dict[str, Mapping[str, object]] = {
    **BODIES,
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
        "group": "orders",
        "generation": 9,
        "target": {"m1": {"active": ["0_0"], "standby": []}},
        "intermediate": {"m1": {"active": ["0_0"], "standby": [], "warmup": ["0_1"]}},
        "current": {"m1": {"active": ["0_0"], "standby": [], "warmup": []}},
        "revoking": {"m1": ["0_2"]},
    },
    "member_get": {
        "member_id": "a6f1",
        "instance_id": None,
        "member_epoch": 13,
        "state": "unrevoked",
        "capacity": 4,
        "max_tasks": None,
        "max_disk_bytes": None,
        "client_tags": {"zone": "a"},
        "topology_epoch": 1,
        "on_lease_lost": "stop",
        "endpoint": None,
        "joined_at": AT,
        "last_heard_at": LATER,
        "draining": True,
        "drain_deadline_at": None,
        "kept_out": {"since": AT, "until": None},
        "suspected": False,
        "silent": False,
        "away_until": None,
        "distrusted_until": None,
        "faults": "",
        "assignment": MEMBER_ANSWER["assignment"],
        "revoking": ["0_2"],
        "disk_bytes": 12_300,
        "reports": {
            "0_1": {
                "role": "active",
                "lag": None,
                "at": LATER,
                "state": "failed",
                "input_lag": 7,
                "load": 0.25,
                "detail": "disk full",
            },
            "0_3": {
                "role": "warmup",
                "lag": 88,
                "at": LATER,
                "position": {"a": 812, "b": 40},
                "lost": True,
                "disk_bytes": 12_300,
                "records_per_second": 20.5,
            },
        },
    },
    "plan_answer": {
        **BODIES["snapshot_answer"],
        "balance": {"before": {"least": 0.0, "most": 2.0}, "after": {"least": 1.0, "most": 1.0}},
    },
    **HISTORY_EXAMPLES,
}
