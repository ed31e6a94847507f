"""A coordinator for tests whose records outlive it: `python -m tests.worker.durable_coordinator PORT FILE`."""

import asyncio
import pickle
import sys
from pathlib import Path

from batonpass.runtime.memory_log import MemoryRecordLog
from batonpass.runtime.ports import Commit
from batonpass.worker.testing.__main__ import serve


class FileRecordLog(MemoryRecordLog):
    """A record log in memory that is written to a file with every append, and read from there at the start."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        if path.exists():
            self._stored, self._epochs = pickle.loads(path.read_bytes())  # noqa: S301 - its own file

    async def append(self, commit: Commit) -> None:
        """Append, and keep it before anybody is answered."""
        await super().append(commit)
        written = self._path.with_suffix(".new")
        written.write_bytes(pickle.dumps((self._stored, self._epochs)))
        written.replace(self._path)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), log=FileRecordLog(Path(sys.argv[2]))))
