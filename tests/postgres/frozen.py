"""A coordinator's store in a process of its own: it appends to one group for as long as it holds it, and says so.

Its arguments are the URL of the database and the name of the group. It prints ``held <epoch>`` once, then ``wrote
<version>`` for each append, ``refused <class>`` for each that fails, and ``not held`` when its lease is over.
"""

import asyncio
import sys

from batonpass.core.state.ids import GroupId
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres.fleet import Registration
from batonpass.postgres.store import PostgresStore
from batonpass.runtime.ports import Commit, StoreUnavailable, VersionConflict


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(url: str, group_id: GroupId) -> None:
    """Take the group over and write to it until it is somebody else's."""
    store = PostgresStore(url, Registration(lease_ms=1_500, renewal_ms=300))
    await store.start()
    epoch = await store.log.take_over(group_id)
    say(f"held {epoch}")
    version = 0
    while True:
        if not store.ownership.holds(group_id):
            say("not held")
        try:
            # Also when it is not held: the log itself must refuse.
            await store.log.append(Commit(group_id, epoch, version, [ProbeScheduled(version)]))
        except (VersionConflict, StoreUnavailable) as error:
            say(f"refused {type(error).__name__}")
        else:
            version += 1
            say(f"wrote {version}")
        await asyncio.sleep(0.05)


asyncio.run(main(sys.argv[1], GroupId(sys.argv[2])))
