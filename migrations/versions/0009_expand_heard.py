"""When a member that was given up was last heard: a run of a task says how long nobody ran it before, at most."""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

FIELDS = (
    *("task_id", "member_id", "kind", "role_before", "role", "at", "generation", "member_epoch", "token", "state"),
    *("warm", "why", "heard_at"),
)
ARRAYS = ", ".join(f"jsonb_array_elements(packed -> {number})" for number in range(len(FIELDS)))


def value_of(name: str) -> str:
    """Return the text of a field: of this change, or the one that stands for all."""
    return f"coalesce(r.{name}, packed -> {FIELDS.index(name)} -> 0) #>> '{{}}'"


def instant_of(name: str) -> str:
    """Return the instant in a field."""
    return f"timestamptz 'epoch' + cast({value_of(name)} as bigint) * interval '1 millisecond'"


VIEW = f"""
    create or replace view fresh_changes as
    select b.group_id, {instant_of("at")} as at, b.version,
           b.place + cast(r.number as integer) - 1 as place, {value_of("task_id")} as task_id,
           {value_of("member_id")} as member_id, {value_of("kind")} as kind, {value_of("role_before")} as role_before,
           {value_of("role")} as role, {value_of("state")} as state, cast({value_of("generation")} as bigint) as generation,
           cast({value_of("member_epoch")} as bigint) as member_epoch, cast({value_of("token")} as bigint) as token,
           cast({value_of("warm")} as boolean) as warm, {value_of("why")} as why, {instant_of("heard_at")} as heard_at
      from change_batches b cross join lateral (select cast(b.changes as jsonb) as packed offset 0) p
           cross join lateral rows from ({ARRAYS}) with ordinality as r({", ".join(FIELDS)}, number)
"""  # noqa: S608 - constants


def upgrade() -> None:
    """Add the column, also to the view. Batches of programs before this one do not have it."""
    op.add_column(
        "assignment_events",
        sa.Column(
            "heard_at", sa.DateTime(timezone=True), comment="of a member that was given up: when it was last heard"
        ),
    )
    op.execute(VIEW)
