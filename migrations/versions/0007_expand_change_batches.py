"""Changes come in batches, a text each, and are put where they belong after their commit.

A view shows them as rows. It has the name and the columns of the table that took the rows of large commits before, so
that programs before this one go on: they read it, and what they write into it goes where it belongs at once.
"""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

FIELDS = (
    *("task_id", "member_id", "kind", "role_before", "role", "at", "generation", "member_epoch", "token", "state"),
    *("warm", "why"),
)
ARRAYS = ", ".join(f"jsonb_array_elements(packed -> {number})" for number in range(len(FIELDS)))


def value_of(name: str) -> str:
    """Return the text of a field: of this change, or the one that stands for all."""
    return f"coalesce(r.{name}, packed -> {FIELDS.index(name)} -> 0) #>> '{{}}'"


VIEW = f"""
    create view fresh_changes as
    select b.group_id, timestamptz 'epoch' + cast({value_of("at")} as bigint) * interval '1 millisecond' as at, b.version,
           b.place + cast(r.number as integer) - 1 as place, {value_of("task_id")} as task_id,
           {value_of("member_id")} as member_id, {value_of("kind")} as kind, {value_of("role_before")} as role_before,
           {value_of("role")} as role, {value_of("state")} as state, cast({value_of("generation")} as bigint) as generation,
           cast({value_of("member_epoch")} as bigint) as member_epoch, cast({value_of("token")} as bigint) as token,
           cast({value_of("warm")} as boolean) as warm, {value_of("why")} as why
      from change_batches b cross join lateral (select cast(b.changes as jsonb) as packed offset 0) p
           cross join lateral rows from ({ARRAYS}) with ordinality as r({", ".join(FIELDS)}, number)
"""  # noqa: S608 - constants
TAKES = """
    create function fresh_changes_take() returns trigger language plpgsql as $$
    begin
        insert into assignment_events (group_id, at, version, place, task_id, member_id, kind, role_before, role, state,
                                       generation, member_epoch, token, warm, why)
        values (new.group_id, new.at, new.version, new.place, new.task_id, new.member_id, new.kind, new.role_before,
                new.role, new.state, new.generation, new.member_epoch, new.token, new.warm, new.why);
        return new;
    end $$
"""
TRIGGER = "create trigger takes instead of insert on fresh_changes for each row execute function fresh_changes_take()"


def upgrade() -> None:
    """Make the table and the view, and put what is in the old table where it belongs."""
    op.create_table(
        "change_batches",
        sa.Column("group_id", sa.Text, nullable=False),
        sa.Column(
            "version", sa.BigInteger, nullable=False, comment="how many records the group held before the decision"
        ),
        sa.Column("place", sa.Integer, nullable=False, comment="of the first one among the changes of the decision"),
        sa.Column("changes", sa.Text, nullable=False, comment="JSON: an array for each field of a change"),
    )
    op.execute("lock table fresh_changes in access exclusive mode")
    op.execute(
        "insert into assignment_events (group_id, at, version, place, task_id, member_id, kind, role_before, role, state,"
        " generation, member_epoch, token, warm, why) select group_id, at, version, place, task_id, member_id, kind,"
        " role_before, role, state, generation, member_epoch, token, warm, why from fresh_changes"
    )
    op.drop_table("fresh_changes")
    op.execute(VIEW)
    op.execute(TAKES)
    op.execute(TRIGGER)
