"""A worker of the job in a process of its own: ``python -m tests.worker.kafka.worker JOB FOLDER NAME URL``."""

import asyncio
import sys
from pathlib import Path

from tests.worker.kafka.totals import Job, from_words

from batonpass.worker import Member, OnLeaseLost
from batonpass.worker.kafka import ActiveOptions


async def main(job: Job, folder: Path, name: str, url: str) -> None:
    """Work until told to stop."""
    runtime = job.runtime(folder / name, name, options=ActiveOptions(commit_interval_ms=20))
    member = Member(
        url, job.group, runtime, instance_id=name, on_lease_lost=OnLeaseLost.CONTINUE, on_disk=await runtime.on_disk()
    )
    async with member:
        await member.run()


if __name__ == "__main__":
    asyncio.run(main(from_words(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
