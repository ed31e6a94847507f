"""When a run of an audit was last heard of, so that one whose process died does not look as if it ran for ever."""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; runs of older programs leave it empty."""
    op.add_column(
        "audit_runs",
        sa.Column("heard_at", sa.DateTime(timezone=True), comment="once a minute while it runs; null: it never says"),
    )
