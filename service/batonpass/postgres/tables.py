"""The tables, as SQLAlchemy Core values. What makes them is in migrations/; a test holds the two equal.

The record log is the truth: one row per record, in the order of ``seq`` within its group. A group's head says how many
there are and which coordinator may add to them; every append begins by moving the head, so that of two writers one
finds that it has moved (L4).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, MetaData, SmallInteger, Table, Text, func
from sqlalchemy.dialects.postgresql import JSON

metadata = MetaData()

group_heads = Table(
    "group_heads",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False, comment="how many records the group holds"),
    Column("coordinator_epoch", BigInteger, nullable=False, comment="lower ones may not append any more"),
    Column("owner", Text, comment="the coordinator that alone may append; null: released"),
    # Every append changes a head in place; room on its page lets it stay there, without a change to any index.
    postgresql_with={"fillfactor": 50},
)

coordinators = Table(
    "coordinators",
    metadata,
    Column("id", Text, primary_key=True, comment="of one stretch of ownership; never used twice"),
    Column("url", Text, nullable=False, comment="where others forward to; empty: nowhere"),
    Column("code", Text, nullable=False, comment="the version of the program"),
    Column("reads", JSON, nullable=False, comment="the newest version that it reads of each kind"),
    Column("started_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("expires_at", DateTime(timezone=True), nullable=False, comment="by the database's clock"),
)

record_log = Table(
    "record_log",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, comment="from 1, without gaps"),
    Column("coordinator_epoch", BigInteger, nullable=False, comment="of the coordinator that appended"),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now(), comment="by the database's clock"),
    Column("kind", Text, nullable=False),
    Column("version", SmallInteger, nullable=False, comment="of the payload"),
    # Not jsonb: what is read must be what was written, byte for byte (L10). jsonb orders keys anew and has no NUL.
    Column("payload", JSON, nullable=False),
)
