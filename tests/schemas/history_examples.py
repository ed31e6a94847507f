"""Bodies of the calls that look back or explain: a handover of 0_5 from m1 to m3, and what is said of it."""

from typing import Any

AT = "2026-03-01T12:00:00.000Z"
LATER = "2026-03-01T12:00:41.250Z"

GENERATION: dict[str, Any] = {
    "generation": 9,
    "group_epoch": 12,
    "at": AT,
    "triggers": ["join"],
    "members": 3,
    "tasks": 8,
    "moves": 1,
    "lower_bound": 1,
    "warmups": 1,
    "imbalance": {"before": 2.0, "after": 1.0},
    "decide_ms": 0.41,
    "reasons": [{"code": "stays", "task": None, "to": None, "detail": "", "tasks": 7}],
}

RUN: dict[str, Any] = {
    "member": "m3",
    "fencing_token": 41,
    "generation": 9,
    "granted_at": AT,
    "running_at": LATER,
    "stopped_at": None,
    "ended": None,
    "warm": True,
    "why": "handover",
    "gap_ms": 250,
    "gap_is_lower_bound": False,
    "gap_at_most_ms": None,
}

WAIT: dict[str, Any] = {
    "what": "warmup",
    "member": "m3",
    "until": None,
    "eta_ms": 41_000,
    "detail": "812 records behind",
}

EXPLAINED: dict[str, Any] = {
    "group": "orders",
    "generation": 9,
    "task": "0_5",
    "stateful": True,
    "weight": 1.0,
    "state": "warming",
    "owner": "m1",
    "endpoint": "http://10.0.0.7:9000",
    "since": AT,
    "fencing_token": 40,
    "target": "m3",
    "target_standbys": [],
    "to": "m1",
    "why": "stays",
    "held_back": None,
    "copies": [
        {
            "member": "m3",
            "role": "warmup",
            "readiness": "behind",
            "lag": 812,
            "records_per_second": 20.0,
            "eta_ms": 41_000,
            "progress_at": AT,
            "stalled_until": None,
        }
    ],
    "waits_for": [WAIT],
    "stopped": None,
    "pin": None,
    "parked": False,
    "failures": [{"member": "m2", "instance_id": None, "at": AT, "outcome": "failed", "times": 1, "avoided_until": AT}],
    "sentences": ["m1 runs 0_5 and has had it for 3 h."],
    "last_placement": {
        "generation": 9,
        "at": AT,
        "triggers": ["join"],
        "from": "m1",
        "to": "m3",
        "why": "balance",
    },
}

CHANGE: dict[str, Any] = {
    "at": AT,
    "member": "m3",
    "kind": "granted",
    "role_before": "warmup",
    "role": "active",
    "state": None,
    "generation": 9,
    "member_epoch": 13,
    "fencing_token": 41,
    "warm": True,
    "why": "handover",
}

EVENT: dict[str, Any] = {
    "position": 117,
    "group": "orders",
    "type": "handover-done",
    "at": LATER,
    "generation": 9,
    "member": "m3",
    "task": "0_5",
    "body": {
        "from": "m1",
        "cause": "revoked",
        "warm": True,
        "gap_ms": 250,
        "stopped_at": AT,
        "granted_at": AT,
        "fencing_token": 41,
    },
}

COMMAND: dict[str, Any] = {
    "position": 7,
    "at": AT,
    "group": "orders",
    "command": "drain",
    "who": "ops",
    "reason": "node goes",
    "cause": "abc-1",
    "subject": {"member_id": "m1"},
}

HEALTH: dict[str, Any] = {
    "level": "trouble",
    "what": "not-processed",
    "sentence": "1 of 8 tasks is not processed: 1 parked after failures.",
    "since": AT,
    "until": None,
    "ends": "when an operator releases it, once it is mended",
    "at": LATER,
    "evidence": "3 of 3 members heard within 1 s",
    "heard": 3,
    "judged_from": None,
    "tasks": {"running": 7, "parked": 1},
    "unknown": 0,
    "cause": {"task": "0_5", "member": "m1", "instance_id": "pod-1", "at": AT, "detail": "checksum mismatch"},
    "incident": {"task": None, "member": "m9", "instance_id": None, "at": AT, "detail": "its lease ran out"},
    "todo": "First mend what the worker logged (checksum mismatch), then release what is parked.",
    "remedies": [{"action": "release", "member": None, "task": "0_5", "command": "batonpass release orders 0_5"}],
    "more_remedies": 0,
    "runbook": "task-not-running",
    "others": [
        {
            "level": "attention",
            "what": "paused",
            "sentence": "An operator holds every move.",
            "since": AT,
            "until": None,
            "ends": "when an operator resumes it",
            "cause": None,
            "todo": "Resume when what it was paused for is done.",
            "remedies": [{"action": "resume", "member": None, "task": None, "command": "batonpass resume orders"}],
            "more_remedies": 0,
            "runbook": "paused-too-long",
        }
    ],
}

GROUP_EXPLAINED: dict[str, Any] = {
    "health": HEALTH,
    "group": "orders",
    "state": "balancing",
    "detail": "",
    "at_rest": False,
    "group_epoch": 12,
    "generation": 9,
    "sentences": ["1 task still to move."],
    "tasks": {"running": 7, "warming": 1},
    "moves_pending": 1,
    "eta_ms": 41_000,
    "next_probe_at": LATER,
    "next_placement_at": None,
    "triggers": [],
    "pause": {"scope": "balance", "reason": "deploy", "since": AT, "expires_at": None},
    "storm_since": None,
    "kept_out": [{"instance_id": "pod-7", "name": "pod-7", "member_id": None, "since": AT, "until": LATER}],
    "storm_ends_at": None,
    "grants_held_until": None,
    "judges_from": LATER,
    "budgets": {
        "warmups": {"used": 1, "limit": 2},
        "drain_warmups": {"used": 0, "limit": 2},
        "warmups_per_member": {"limit": 2, "full": []},
    },
    "members": [
        {
            "member": "m1",
            "what": "draining",
            "tasks": 3,
            "since": AT,
            "until": LATER,
            "detail": "3 active tasks are left",
        }
    ],
    "held_back": [{"task": "0_6", "to": "m3", "reason": "warmup-budget"}],
    "held_back_by_reason": {"warmup-budget": 1},
    "waiting": [{"task": "0_5", "state": "warming", "held_back": None, "waits_for": [WAIT]}],
    "waiting_total": 1,
}

TOKEN: dict[str, Any] = {
    "id": "t1",
    "name": "ops",
    "role": "operator",
    "group": None,
    "last_four": "x7Qa",
    "status": "valid",
    "created_at": AT,
    "expires_at": None,
    "revoked_at": None,
}

SUMMARY: dict[str, Any] = {
    "group": "orders",
    "state": "at-rest",
    "group_epoch": 12,
    "generation": 9,
    "members": 3,
    "tasks": 8,
    "paused": False,
    "at_rest": True,
    "warmups": 0,
    "moves_pending": 0,
    "health": HEALTH,
}

AUDIT = {
    "day": "2026-02-28",
    "state": "running",
    "verdict": "failed",
    "started_at": "2026-03-01T12:00:00.000Z",
    "finished_at": None,
    "groups": 1,
    "records": 21480,
    "fatal": 1,
    "notices": 0,
    "detail": "it is under way",
}
FINDING = {
    "number": 1,
    "group": "orders",
    "law": "L1",
    "severity": "fatal",
    "task": "0_7",
    "member": "orders-2",
    "detail": "orders-1 and orders-2 both ran 0_7 for 4.2 s.",
    "evidence": {"sequences": [18204, 18211], "at": ["2026-02-28T14:12:07.310Z", "2026-02-28T14:12:11.510Z"]},
}
OUTCOME = {"settings": {"max_warmup_replicas": 2}, "downtime_ms": 1200.5, "moves": 6, "bytes": None, "waiting_ms": 0.0}

HISTORY_EXAMPLES: dict[str, dict[str, Any]] = {
    "groups_get": {"groups": [SUMMARY], "next": None},
    "members_get": {"members": [], "next": "m3"},
    "drain_answer": {
        "drained": False,
        "remaining": ["0_5"],
        "blocked": [{"task": "0_5", "reason": "no-eligible-member"}],
    },
    "safe_to_stop_get": {"member_id": "m1", "safe_to_stop": True},
    "tokens_get": {"tokens": [TOKEN]},
    "token_post": {**TOKEN, "secret": "bpt_secret"},
    "livez_get": {"status": "ok", "loop_age_ms": 0.4},
    "readyz_get": {"status": "not-ready", "reasons": ["the groups are being read from the record log"]},
    "generations_get": {"generations": [GENERATION], "next": 9},
    "generation_get": {
        **GENERATION,
        "diff": [
            {"task": "0_5", "from": "m1", "to": "m3", "standbys_before": [], "standbys": ["m2"], "why": "balance"},
        ],
    },
    "commands_get": {"commands": [COMMAND], "next": None},
    "lags_get": {"lags": [{"at": "2026-02-28T14:12:07.310Z", "behind": 12000}]},
    "audits_get": {"audits": [AUDIT], "next": "2026-02-27"},
    "audit_get": {
        **AUDIT,
        "code_version": "0.1.0+0123abcd",
        "report": "/var/audits/reports/2026-02-28.html",
        "findings": [FINDING],
        "next": None,
        "measures": {"orders": {"moves": 118, "availability": 0.99938, "balance_mean": None}},
        "downtime_by_cause": {
            "orders": {
                "failover": {"count": 2, "p50_ms": 800.0, "p99_ms": 1200.5, "max_ms": 1200.5, "total_ms": 2000.5}
            }
        },
        "recommendations": {
            "orders": {
                "group": "orders",
                "present": OUTCOME,
                "recommended": OUTCOME,
                "confidence": "Fairly sure.",
                "grid": [OUTCOME],
            }
        },
    },
    "event": EVENT,
    "events_get": {"events": [EVENT], "next": 117, "more": False},
    "task_get": {**EXPLAINED, "runs": [RUN], "history": [CHANGE]},
    "task_explain": {**EXPLAINED, "last_run": RUN},
    "route_get": {
        "group": "orders",
        "generation": 9,
        "task": "0_5",
        "active": {"member": "m1", "endpoint": None, "state": "running", "fencing_token": 40},
        "standbys": [{"member": "m2", "endpoint": "http://m2", "lag": 4, "caught_up": True}],
    },
    "group_explain": GROUP_EXPLAINED,
}
