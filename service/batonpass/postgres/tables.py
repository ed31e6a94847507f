"""The tables, as SQLAlchemy Core values. The scripts in migrations/ make them; a test holds the two equal.

The record log is the source of truth: one row per record, in the order of ``seq`` within its group. A group's head says
how many records there are and which coordinator may append; every append begins by moving the head, so that the second
of two writers finds it moved (L4). All else is written by the same statement, or can be derived again.

Instants of decisions come from the coordinator's clock, those of leases from the database's. Payloads are json, never
jsonb: what is read must be what was written, byte for byte (L10), and jsonb reorders keys and has no NUL. The results
of audits are jsonb: no decision is based on them, and people query them.
"""

from typing import Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    event,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB
from sqlalchemy.schema import SchemaItem

metadata = MetaData()


def ms_of(instant: str) -> str:
    """Return the SQL for an instant as milliseconds since 1970."""
    return f"cast(extract(epoch from {instant}) * 1000 as bigint)"


def _table(name: str, *parts: SchemaItem, **more: Any) -> Table:
    return Table(name, metadata, *parts, **more)


def _required(name: str, kind: Any, comment: str | None = None, **more: Any) -> Column[Any]:
    return Column(name, kind, nullable=False, comment=comment, **more)


def _instant(name: str, comment: str | None = None, **more: Any) -> Column[Any]:
    return Column(name, DateTime(timezone=True), comment=comment, **more)


group_heads = _table(
    "group_heads",
    Column("group_id", Text, primary_key=True),
    _required("version", BigInteger, "how many records the group holds"),
    _required("coordinator_epoch", BigInteger, "lower ones may not append any more"),
    Column("owner", Text, comment="the coordinator that alone may append; null: released"),
    _instant("recovered_at", "an operator said that the store lost commits; the group has not been told yet"),
    # Every append updates a head. Free room on its page lets the row stay there, without a change to any index.
    postgresql_with={"fillfactor": 50},
)

coordinators = _table(
    "coordinators",
    Column("id", Text, primary_key=True, comment="of one stretch of ownership; never used twice"),
    _required("url", Text, "where others forward to; empty: nowhere"),
    _required("code", Text, "the version of the program"),
    _required("reads", JSON, "the newest version that it reads of each kind"),
    _instant("started_at", nullable=False, server_default=func.now()),
    _instant("expires_at", "by the database's clock", nullable=False),
)

clock = _table(
    "clock",
    Column("one", Boolean, CheckConstraint("one"), primary_key=True, comment="the only row"),
    _instant("read_at", "when a coordinator last renewed its lease", nullable=False),
    _instant("moved_at", "when it was last found not to run on from the reading before"),
    _instant("moved_from", "that reading"),
)

record_log = _table(
    "record_log",
    Column("group_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, comment="from 1, without gaps"),
    _required("coordinator_epoch", BigInteger, "of the coordinator that appended"),
    _instant("at", "by the database's clock", nullable=False, server_default=func.now()),
    _required("kind", Text),
    _required("version", SmallInteger, "of the payload"),
    _required("payload", JSON),
)

snapshots = _table(
    "snapshots",
    Column("group_id", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True, comment="the group as the first so many records make it"),
    _required("format", SmallInteger, "of the payload"),
    _instant("at", "by the database's clock", nullable=False, server_default=func.now()),
    _required("payload", LargeBinary, "JSON, compressed with zlib"),
)

generations = _table(
    "generations",
    Column("group_id", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    _required("version", BigInteger, "how many records the group held before the decision"),
    _required("group_epoch", BigInteger),
    _instant("at", nullable=False),
    _required("triggers", ARRAY(Text)),
    _required("members", Integer),
    _required("tasks", Integer),
    _required("moves", Integer),
    _required("lower_bound", Integer),
    _required("warmups", Integer),
    _required("score_before", Double),
    _required("score", Double),
    _required("decide_ms", Double),
    _required("reasons", JSON, "[code, task, to, detail, tasks], ..."),
    _required("moved", JSON, "[task, owner before, owner, standbys before, standbys, why], ..."),
    Index("generations_by_time", "at"),
)

assignment_events = _table(
    "assignment_events",
    _required("group_id", Text),
    _instant("at", nullable=False),
    _required("version", BigInteger, "how many records the group held before the decision"),
    _required("place", Integer, "orders the changes of one decision"),
    _required("task_id", Text),
    _required("member_id", Text),
    _required("kind", Text),
    _required("role_before", Text),
    _required("role", Text),
    _required("state", Text),
    _required("generation", BigInteger),
    _required("member_epoch", BigInteger),
    _required("token", BigInteger),
    Column("warm", Boolean),
    _required("why", Text),
    _instant("heard_at", comment="of a member that was given up: when it was last heard"),
    Index("assignment_events_by_task", "group_id", "task_id", "version"),
    postgresql_partition_by="RANGE (at)",
)

change_batches = _table(
    "change_batches",
    _required("group_id", Text),
    _required("version", BigInteger, "how many records the group held before the decision"),
    _required("place", Integer, "of the first one among the changes of the decision"),
    _required("changes", Text, "JSON: an array for each field of a change"),
)
"""Where a commit puts its changes. A row and an index entry for each would be most of what a large commit takes.

``changes`` has an array for each field, the tasks first, with the value of each change; a value that all changes share
is there once.
"""

_FIELDS: Final = (
    *("task_id", "member_id", "kind", "role_before", "role", "at", "generation", "member_epoch", "token", "state"),
    *("warm", "why", "heard_at"),
)


def batches_as_rows(batches: str) -> str:
    """Return the query that shows batches as rows of ``assignment_events``, with the columns in the same order."""
    shown = {
        name: f"cast(coalesce(r.{name}, packed -> {number} -> 0) #>> '{{}}' as bigint)"
        if name in {"at", "generation", "member_epoch", "token", "heard_at"}
        else f"coalesce(r.{name}, packed -> {number} -> 0) #>> '{{}}'"
        for number, name in enumerate(_FIELDS)
    }
    shown |= {
        "group_id": "b.group_id",
        "version": "b.version",
        "place": "b.place + cast(r.number as integer) - 1",
        **{name: f"timestamptz 'epoch' + {shown[name]} * interval '1 millisecond'" for name in ("at", "heard_at")},
        "warm": f"cast({shown['warm']} as boolean)",
    }
    # Without the offset Postgres would parse the JSON again for each value.
    columns = ", ".join(f"{shown[column.name]} as {column.name}" for column in assignment_events.columns)
    arrays = ", ".join(f"jsonb_array_elements(packed -> {number})" for number in range(len(_FIELDS)))
    return (
        f"select {columns} from {batches} b cross join lateral (select cast(b.changes as jsonb) as packed offset 0) p"  # noqa: S608
        f" cross join lateral rows from ({arrays}) with ordinality as r({', '.join(_FIELDS)}, number)"
    )


_FRESH_CHANGES = DDL(f"create view fresh_changes as {batches_as_rows('change_batches')}")  # type: ignore[no-untyped-call]
event.listen(change_batches, "after_create", _FRESH_CHANGES)

traces = _table(
    "traces",
    _required("group_id", Text),
    _instant("at", nullable=False),
    _required("version", BigInteger, "how many records the group held before the decision"),
    _required("format", SmallInteger, "of the payload"),
    _required("code", Text, "the version of the program that decided"),
    _required("cause", Text, "the id under which the request and its log lines are found; empty: none"),
    _required("payload", JSON),
    Index("traces_by_version", "group_id", "version"),
    postgresql_partition_by="RANGE (at)",
)

samples = _table(
    "samples",
    _required("group_id", Text),
    _instant("at", nullable=False),
    _required("copies", JSON, "[task, member, role, state, lag, rate], ...; null: unknown"),
    Column("behind", BigInteger, comment="records that copies lack, added up"),
    Index("samples_by_time", "group_id", "at"),
    postgresql_partition_by="RANGE (at)",
)

# Coordinators of earlier versions write to it. Nothing reads it, and a later version drops it.
members = _table(
    "members",
    Column("group_id", Text, primary_key=True),
    Column("member_id", Text, primary_key=True),
    Column("instance_id", Text),
    Column("endpoint", Text),
    _required("capacity", Double),
    _required("client_tags", JSON),
    _instant("joined_at", nullable=False),
    _instant("draining_since"),
    _instant("away_until", "its place is kept until then"),
    _instant("gone_at"),
    Column("cause", Text, comment="why it is gone"),
)

event_counter = _table(
    "event_counter",
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    _required("position", BigInteger, "of the newest event"),
    CheckConstraint("id = 1", name="event_counter_is_one_row"),
)

events = _table(
    "events",
    Column("position", BigInteger, primary_key=True, autoincrement=False, comment="in the order of the commits"),
    _required("group_id", Text),
    _instant("at", nullable=False),
    _required("type", Text),
    _required("generation", BigInteger),
    Column("member_id", Text),
    Column("task_id", Text),
    _required("body", JSON),
    Index("events_by_group", "group_id", "position"),
)

outbox_readers = _table(
    "outbox_readers",
    Column("name", Text, primary_key=True),
    _required("position", BigInteger, "up to which it has passed events on"),
    _instant("at", "by the database's clock", nullable=False, server_default=func.now()),
)

commands = _table(
    "commands",
    Column("position", BigInteger, Identity(always=True), primary_key=True),
    _required("group_id", Text),
    _instant("at", nullable=False),
    _required("command", Text),
    _required("who", Text),
    _required("asked", JSON, "as it was said: who, reason, cause, command"),
    _required("subject", JSON),
    Index("commands_by_group", "group_id", "position"),
)

tokens = _table(
    "tokens",
    Column("id", Text, primary_key=True),
    _required("digest", LargeBinary, "SHA-256 of the secret, which is not kept", unique=True),
    _required("name", Text),
    _required("role", Text),
    Column("group_id", Text, comment="the one that it is bound to"),
    _required("last_four", Text),
    _instant("created_at", nullable=False, server_default=func.now()),
    _required("created_by", Text, server_default=text("''")),
    _instant("expires_at"),
    _instant("revoked_at"),
)

audit_runs = _table(
    "audit_runs",
    Column("run_id", Uuid, primary_key=True),
    _required("day", Date, "of UTC, that was audited"),
    _instant("started_at", "by the database's clock", nullable=False),
    _instant("finished_at", "null: it has not said yet how it ended"),
    _required("state", Text, "running, passed, failed (a law was broken) or broken"),
    _required("code_version", Text, "of the program that audited"),
    _required("groups", Integer),
    _required("records", BigInteger),
    _required("fatal", Integer),
    _required("notices", Integer),
    _required("detail", Text, "how it went, in a sentence; of a broken one, why"),
    Column("report", Text, comment="where the report lies"),
    _required("settings", JSONB, "what the audit was told"),
    _instant("heard_at", "once a minute while it runs; null: it never says"),
    CheckConstraint("state in ('running', 'passed', 'failed', 'broken')", name="audit_run_has_a_state"),
    Index("audit_runs_by_day", "day", "started_at"),
)

audit_findings = _table(
    "audit_findings",
    Column("run_id", Uuid, ForeignKey("audit_runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False, comment="from 1, fatal ones first"),
    _required("day", Date),
    _required("group_name", Text),
    _required("law", Text, "L1 to L10, or the name of a measure"),
    _required("severity", Text, "fatal or notice"),
    Column("task", Text),
    Column("member", Text),
    _required("detail", Text),
    _required("evidence", JSONB, "sequences of records, and when they were"),
)

audit_daily = _table(
    "audit_daily",
    Column("day", Date, primary_key=True),
    Column("group_name", Text, primary_key=True),
    _required("run_id", Uuid, "that measured"),
    _required("measures", JSONB, "measures, downtime_by_cause, recommendation"),
)

exported_days = _table(
    "exported_days",
    Column("day", Date, primary_key=True),
    _instant("exported_at", "by the database's clock", nullable=False),
    _required("place", Text, "the folder or URI that the day went to"),
    _required("row_counts", JSONB, "rows of each table"),
)

PARTITIONED = (assignment_events, traces, samples)
"""The tables that are cut into days, each of which is dropped whole when it is old enough."""
