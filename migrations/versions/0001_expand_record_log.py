"""The record log and the heads of its groups."""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "group_heads",
        sa.Column("group_id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, comment="how many records the group holds"),
        sa.Column("coordinator_epoch", sa.BigInteger, nullable=False, comment="lower ones may not append any more"),
        sa.PrimaryKeyConstraint("group_id"),
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "record_log",
        sa.Column("group_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False, comment="from 1, without gaps"),
        sa.Column("coordinator_epoch", sa.BigInteger, nullable=False, comment="of the coordinator that appended"),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            server_default=sa.func.now(),
            nullable=False,
            comment="by the database's clock",
        ),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("version", sa.SmallInteger, nullable=False, comment="of the payload"),
        sa.Column("payload", postgresql.JSON, nullable=False),
        sa.PrimaryKeyConstraint("group_id", "seq"),
    )
