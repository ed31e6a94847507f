"""When the clock was last read, so that a coordinator that starts sees whether it ran on from there."""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; the first coordinator fills it."""
    op.create_table(
        "clock",
        sa.Column("one", sa.Boolean, sa.CheckConstraint("one"), primary_key=True, comment="the only row"),
        sa.Column(
            "read_at", sa.DateTime(timezone=True), nullable=False, comment="when a coordinator last renewed its lease"
        ),
        sa.Column(
            "moved_at",
            sa.DateTime(timezone=True),
            comment="when it was last found not to run on from the reading before",
        ),
        sa.Column("moved_from", sa.DateTime(timezone=True), comment="that reading"),
    )
