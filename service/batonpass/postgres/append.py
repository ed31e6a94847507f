"""The statement that appends: many groups at once, each behind a guard of its own.

It moves the heads that are where their commits expect them, and adds the rows of these commits alone. So it commits
whole, takes one round trip, and a guard that fails costs no other group anything. Two writers of one group meet at the
row of its head: the second one waits for the first, then sees what it has done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import TextClause, text

from batonpass.codec.records import StoredRecord, encode_records
from batonpass.runtime.ports import Commit


class Prepared(NamedTuple):
    """A commit in its stored form. ``weight`` is about how many bytes it has."""

    commit: Commit
    records: tuple[StoredRecord, ...]
    weight: int


def prepare(commit: Commit) -> Prepared:
    """Return the stored form of a commit.

    Raises:
        UnwritableRecord: when a record has no stored form.
    """
    records = encode_records(commit.records)
    return Prepared(commit, records, sum(len(one.payload) for one in records))


_GUARDS: Final = """
    asked as (
        select * from unnest(cast(:groups as text[]), cast(:expected as bigint[]), cast(:added as bigint[]),
                             cast(:epochs as bigint[])) with ordinality as a(group_id, expected, added, epoch, place)
    ), locked as (
        -- In one order, so that two coordinators that write to the same groups never wait for each other in a circle.
        select h.group_id from group_heads h join asked a on a.group_id = h.group_id order by h.group_id for update of h
    ), moved as (
        update group_heads h set version = a.expected + a.added, coordinator_epoch = a.epoch
          from asked a join locked l on l.group_id = a.group_id
         where h.group_id = a.group_id and h.version = a.expected and h.coordinator_epoch <= a.epoch
           and h.owner = :owner
        returning h.group_id, a.expected, a.epoch, a.place
    )
"""
_RECORDS: Final = """
    , records as (
        insert into record_log (group_id, seq, coordinator_epoch, kind, version, payload)
        select m.group_id, r.seq, m.epoch, r.kind, r.version, cast(r.payload as json)
          from unnest(cast(:record_places as bigint[]), cast(:seqs as bigint[]), cast(:kinds as text[]),
                      cast(:versions as smallint[]), cast(:payloads as text[])) as r(place, seq, kind, version, payload)
          join moved m on m.place = r.place
    )
"""
APPEND: Final[TextClause] = text(f"with {_GUARDS} {_RECORDS} select place from moved")  # noqa: S608 - constants


def parameters(batch: Sequence[Prepared], owner: str) -> dict[str, Any]:
    """Return the parameters of the statement; commits are known by their place in the batch, from 1."""
    places: list[int] = []
    seqs: list[int] = []
    stored: list[StoredRecord] = []
    for place, one in enumerate(batch, start=1):
        first = one.commit.expected_version + 1
        places += [place] * len(one.records)
        seqs += range(first, first + len(one.records))
        stored += one.records
    return {
        "owner": owner,
        "groups": [one.commit.group_id for one in batch],
        "expected": [one.commit.expected_version for one in batch],
        "added": [len(one.records) for one in batch],
        "epochs": [one.commit.coordinator_epoch for one in batch],
        "record_places": places,
        "seqs": seqs,
        "kinds": [one.kind for one in stored],
        "versions": [one.version for one in stored],
        "payloads": [one.payload.decode() for one in stored],
    }
