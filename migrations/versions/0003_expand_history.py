"""What stands beside the records: generations, changes, events, members, commands, traces, samples; and tokens."""

# ruff: noqa: INP001 - found by path, not imported as a package

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BEFORE = "how many records the group held before the decision"


def required(name: str, kind: Any, comment: str | None = None, **more: Any) -> sa.Column[Any]:
    """Return a column that is never null."""
    return sa.Column(name, kind, nullable=False, comment=comment, **more)


def instant(name: str, comment: str | None = None, **more: Any) -> sa.Column[Any]:
    """Return a column of an instant."""
    return sa.Column(name, sa.DateTime(timezone=True), comment=comment, **more)


def upgrade() -> None:
    """Make the tables."""
    op.add_column(
        "group_heads",
        instant("recovered_at", "an operator said that the store lost commits; the group has not been told yet"),
    )
    make_partitioned()
    make_beside_the_records()
    make_events()
    make_others()


def make_partitioned() -> None:
    """Make the tables that are cut into days; what no day has been made for goes into the rest."""
    op.create_table(
        "assignment_events",
        required("group_id", sa.Text),
        instant("at", nullable=False),
        required("version", sa.BigInteger, BEFORE),
        required("place", sa.Integer, "orders the changes of one decision"),
        required("task_id", sa.Text),
        required("member_id", sa.Text),
        required("kind", sa.Text),
        required("role_before", sa.Text),
        required("role", sa.Text),
        required("state", sa.Text),
        required("generation", sa.BigInteger),
        required("member_epoch", sa.BigInteger),
        required("token", sa.BigInteger),
        sa.Column("warm", sa.Boolean),
        required("why", sa.Text),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index("assignment_events_by_task", "assignment_events", ["group_id", "task_id", "version"])
    op.create_table(
        "traces",
        required("group_id", sa.Text),
        instant("at", nullable=False),
        required("version", sa.BigInteger, BEFORE),
        required("format", sa.SmallInteger, "of the payload"),
        required("code", sa.Text, "the version of the program that decided"),
        required("cause", sa.Text, "the id under which the request and its log lines are found; empty: none"),
        required("payload", postgresql.JSON),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index("traces_by_version", "traces", ["group_id", "version"])
    op.create_table(
        "samples",
        required("group_id", sa.Text),
        instant("at", nullable=False),
        required("copies", postgresql.JSON, "[task, member, role, state, lag, rate], ...; null: unknown"),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index("samples_by_time", "samples", ["group_id", "at"])
    for table in ("assignment_events", "traces", "samples"):
        op.execute(f"create table {table}_rest partition of {table} default")


def make_beside_the_records() -> None:
    """Make what is written with the records and asked for by group."""
    op.create_table(
        "generations",
        required("group_id", sa.Text),
        required("number", sa.BigInteger),
        required("version", sa.BigInteger, BEFORE),
        required("group_epoch", sa.BigInteger),
        instant("at", nullable=False),
        required("triggers", postgresql.ARRAY(sa.Text)),
        *(required(name, sa.Integer) for name in ("members", "tasks", "moves", "lower_bound", "warmups")),
        *(required(name, sa.Double) for name in ("score_before", "score", "decide_ms")),
        required("moved", postgresql.JSON, "[task, owner before, owner, standbys before, standbys, why], ..."),
        required("reasons", postgresql.JSON, "[code, task, to, detail, tasks], ..."),
        sa.PrimaryKeyConstraint("group_id", "number"),
    )
    op.create_index("generations_by_time", "generations", ["at"])
    op.create_table(
        "members",
        required("group_id", sa.Text),
        required("member_id", sa.Text),
        sa.Column("instance_id", sa.Text),
        sa.Column("endpoint", sa.Text),
        required("capacity", sa.Double),
        required("client_tags", postgresql.JSON),
        instant("joined_at", nullable=False),
        instant("draining_since"),
        instant("away_until", "its place is kept until then"),
        instant("gone_at"),
        sa.Column("cause", sa.Text, comment="why it is gone"),
        sa.PrimaryKeyConstraint("group_id", "member_id"),
    )


def make_events() -> None:
    """Make the stream of events, the counter of its positions, and the audit trail."""
    op.create_table(
        "event_counter",
        sa.Column("id", sa.SmallInteger, autoincrement=False, nullable=False),
        required("position", sa.BigInteger, "of the newest event"),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("id = 1", name="event_counter_is_one_row"),
    )
    op.create_table(
        "events",
        sa.Column(
            "position", sa.BigInteger, autoincrement=False, nullable=False, comment="in the order of the commits"
        ),
        required("group_id", sa.Text),
        instant("at", nullable=False),
        required("type", sa.Text),
        required("generation", sa.BigInteger),
        sa.Column("member_id", sa.Text),
        sa.Column("task_id", sa.Text),
        required("body", postgresql.JSON),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("events_by_group", "events", ["group_id", "position"])
    op.create_table(
        "commands",
        sa.Column("position", sa.BigInteger, sa.Identity(always=True), nullable=False),
        required("group_id", sa.Text),
        instant("at", nullable=False),
        required("command", sa.Text),
        required("who", sa.Text),
        required("asked", postgresql.JSON, "as it was said: who, reason, cause, command"),
        required("subject", postgresql.JSON),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("commands_by_group", "commands", ["group_id", "position"])


def make_others() -> None:
    """Make snapshots, the readers of the outbox, and tokens."""
    op.create_table(
        "snapshots",
        required("group_id", sa.Text),
        required("version", sa.BigInteger, "the group as the first so many records make it"),
        required("format", sa.SmallInteger, "of the payload"),
        instant("at", "by the database's clock", nullable=False, server_default=sa.func.now()),
        required("payload", sa.LargeBinary, "JSON, compressed with zlib"),
        sa.PrimaryKeyConstraint("group_id", "version"),
    )
    op.create_table(
        "outbox_readers",
        required("name", sa.Text),
        required("position", sa.BigInteger, "up to which it has passed events on"),
        instant("at", "by the database's clock", nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "tokens",
        required("id", sa.Text),
        required("digest", sa.LargeBinary, "SHA-256 of the secret, which is not kept"),
        required("name", sa.Text),
        required("role", sa.Text),
        sa.Column("group_id", sa.Text, comment="the one that it is bound to"),
        required("last_four", sa.Text),
        instant("created_at", nullable=False, server_default=sa.func.now()),
        required("created_by", sa.Text, server_default=sa.text("''")),
        instant("expires_at"),
        instant("revoked_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
