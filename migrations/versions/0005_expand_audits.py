"""What audits come to: their runs, findings and measures; and which days were exported before retention drops them."""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "audit_runs",
        sa.Column("run_id", sa.Uuid, nullable=False),
        sa.Column("day", sa.Date, nullable=False, comment="of UTC, that was audited"),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False, comment="by the database's clock"),
        sa.Column("finished_at", sa.DateTime(timezone=True), comment="null: it has not said yet how it ended"),
        sa.Column("state", sa.Text, nullable=False, comment="running, passed, failed (a law was broken) or broken"),
        sa.Column("code_version", sa.Text, nullable=False, comment="of the program that audited"),
        sa.Column("groups", sa.Integer, nullable=False),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.Column("fatal", sa.Integer, nullable=False),
        sa.Column("notices", sa.Integer, nullable=False),
        sa.Column("detail", sa.Text, nullable=False, comment="how it went, in a sentence; of a broken one, why"),
        sa.Column("report", sa.Text, comment="where the report lies"),
        sa.Column("settings", postgresql.JSONB, nullable=False, comment="what the audit was told"),
        sa.PrimaryKeyConstraint("run_id"),
        sa.CheckConstraint("state in ('running', 'passed', 'failed', 'broken')", name="audit_run_has_a_state"),
    )
    op.create_index("audit_runs_by_day", "audit_runs", ["day", "started_at"])
    op.create_table(
        "audit_findings",
        sa.Column("run_id", sa.Uuid, nullable=False),
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False, comment="from 1, fatal ones first"),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("law", sa.Text, nullable=False, comment="L1 to L10, or the name of a measure"),
        sa.Column("severity", sa.Text, nullable=False, comment="fatal or notice"),
        sa.Column("task", sa.Text),
        sa.Column("member", sa.Text),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("evidence", postgresql.JSONB, nullable=False, comment="sequences of records, and when they were"),
        sa.PrimaryKeyConstraint("run_id", "number"),
        sa.ForeignKeyConstraint(["run_id"], ["audit_runs.run_id"], ondelete="CASCADE"),
    )
    op.create_table(
        "audit_daily",
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("run_id", sa.Uuid, nullable=False, comment="that measured"),
        sa.Column("measures", postgresql.JSONB, nullable=False, comment="measures, downtime_by_cause, recommendation"),
        sa.PrimaryKeyConstraint("day", "group_name"),
    )
    op.create_table(
        "exported_days",
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("exported_at", sa.DateTime(timezone=True), nullable=False, comment="by the database's clock"),
        sa.Column("place", sa.Text, nullable=False, comment="the folder or URI that the day went to"),
        sa.Column("row_counts", postgresql.JSONB, nullable=False, comment="rows of each table"),
        sa.PrimaryKeyConstraint("day"),
    )
