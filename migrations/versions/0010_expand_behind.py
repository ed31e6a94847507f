"""How far the copies of a group were behind at each sample, added up: a trend is read without the copies."""

# ruff: noqa: INP001 - found by path, not imported as a package

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Samples of programs before this one do not have it."""
    op.add_column("samples", sa.Column("behind", sa.BigInteger(), comment="records that copies lack, added up"))
