"""Coordinators with their leases, and which of them owns a group."""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of coordinators, and give heads an owner."""
    op.create_table(
        "coordinators",
        sa.Column("id", sa.Text, nullable=False, comment="of one stretch of ownership; never used twice"),
        sa.Column("url", sa.Text, nullable=False, comment="where others forward to; empty: nowhere"),
        sa.Column("code", sa.Text, nullable=False, comment="the version of the program"),
        sa.Column("reads", postgresql.JSON, nullable=False, comment="the newest version that it reads of each kind"),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False, comment="by the database's clock"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.add_column(
        "group_heads",
        sa.Column("owner", sa.Text, nullable=True, comment="the coordinator that alone may append; null: released"),
    )
