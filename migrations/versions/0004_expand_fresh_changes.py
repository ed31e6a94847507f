"""Where the changes of large commits go first: without an index, which would cost more than the rows."""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, with the columns of ``assignment_events``."""
    op.create_table(
        "fresh_changes",
        sa.Column("group_id", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("task_id", "member_id", "kind", "role_before", "role")),
        sa.Column("state", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("generation", "member_epoch", "token")),
        sa.Column("warm", sa.Boolean),
        sa.Column("why", sa.Text, nullable=False),
    )
