"""Tries a store of objects: `python -m tests.audit.on_store s3://bucket/folder` writes what an audit writes, twice.

Credentials, region and AWS_ENDPOINT_URL come from the environment, as for the audit. No server of that protocol is
among the packages that tests install, so this is run by hand, when `audit/places.py` changes or a store is new.
"""

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyarrow import parquet as pq
from tests.audit.sample import DAY, clean_result, sample_result

from batonpass.audit import parquet, places
from batonpass.audit.rows import Gap, batch_of
from batonpass.terminal import say

LARGE = 50_000
"""So many rows are more than one part of an upload."""


def gaps(count: int) -> list[pa.RecordBatch]:
    """Return rows that do not compress to next to nothing."""
    return [
        batch_of(
            Gap,
            (
                ("g", Gap(f"0_{n}", "stuck", n, n * n, n**3, n % 7, str(n * 7919), None, None, n, None))
                for n in range(count)
            ),
        )
    ]


def main(out: str) -> None:
    """Write, write again, fail while writing, and look at what is there each time."""
    files, root = places.located(out)

    def rows(table: str) -> int:
        return int(pq.read_table(f"{root}/{table}/day={DAY}", filesystem=files).num_rows)

    for result, count in ((sample_result(), LARGE), (clean_result(), 3)):
        address = places.put(out, f"report-{DAY}.html", f"{len(result.findings)} findings".encode())
        parquet.write_result(result, out)
        parquet.write_day(gaps(count), Gap, out, "gaps", DAY)
        assert (rows("findings"), rows("gaps")) == (len(result.findings), count)
        with files.open_input_file(f"{root}/report-{DAY}.html") as report:
            assert report.read() == f"{len(result.findings)} findings".encode()
        say(f"{address}: {len(result.findings)} findings, {count:,} gaps")

    def breaks() -> Iterator[pa.RecordBatch]:
        yield from gaps(5)
        raise RuntimeError("the audit was killed")

    try:
        parquet.write_day(breaks(), Gap, out, "gaps", DAY)
    except RuntimeError:
        assert rows("gaps") == 3
        say("what was there stays where a write fails")
    found = files.get_file_info(arrow_fs.FileSelector(root, recursive=True))
    names = sorted(one.path for one in found if one.type == arrow_fs.FileType.File)
    assert not [one for one in names if "/." in one], names
    say(f"{len(names)} files, none unfinished")


if __name__ == "__main__":
    main(*sys.argv[1:])
