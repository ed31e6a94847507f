"""Where an audit's files go: a folder, or a store that Arrow knows; a file is whole in its place, or the old one stays.

It is written beside its place, under a name that readers skip, and renamed when it is whole. Nothing in an object store
is renamed: there it is copied.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyarrow import parquet as pq

ROWS: Final = "rows.parquet"

LEFT_S: Final = 24 * 3_600
"""A file that an audit left unfinished counts as abandoned if nothing has changed in it for so long."""


def located(out: str) -> tuple[Any, str]:
    """Return the file system that ``out`` is on, and the path there.

    Raises:
        OSError: when its kind is not known, or it cannot be reached.
    """
    if "://" not in out:
        return arrow_fs.LocalFileSystem(), str(Path(out).absolute())
    if "AWS_ENDPOINT_URL" in os.environ:
        # Amazon's client asks for checksums that only Amazon's own store is sure to know; others answer 501.
        for name in ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"):
            os.environ.setdefault(name, "when_required")
    try:
        # Spark has a scheme of its own for buckets.
        files, path = arrow_fs.FileSystem.from_uri(out.rstrip("/").replace("s3a://", "s3://", 1))
    except pa.ArrowException as error:
        raise OSError(f"{out} is no place to write to: {error}") from error
    return files, path


def put(out: str, name: str, content: bytes) -> str:
    """Write a file, in place of what was there, whole or not at all; return its path or address.

    Raises:
        OSError: when it cannot be written.
    """
    files, root = located(out)
    files.create_dir(root, recursive=True)
    with whole(files, f"{root}/{name}") as unfinished, files.open_output_stream(unfinished) as sink:
        sink.write(content)
    return f"{out.rstrip('/') if '://' in out else root}/{name}"


@contextmanager
def whole(files: Any, path: str) -> Iterator[str]:
    """Lend a path to write to, whose file comes to ``path`` when it is whole; if that fails, what was there stays."""
    folder, _, name = path.rpartition("/")
    # Readers skip names that begin with a dot.
    unfinished = f"{folder}/.{name}.{uuid4().hex}"
    try:
        yield unfinished
        files.move(unfinished, path)
    except BaseException:
        if exists(files, unfinished):
            files.delete_file(unfinished)
        raise


def write_table(files: Any, folder: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches to ``folder/rows.parquet``, in place of what is there; return how many rows they had.

    Raises:
        OSError: when it cannot be written; what was there stays.
    """
    files.create_dir(folder, recursive=True)
    count = 0
    with (
        whole(files, f"{folder}/{ROWS}") as path,
        files.open_output_stream(path) as sink,
        pq.ParquetWriter(sink, schema, compression="zstd") as out,
    ):
        for batch in batches:
            out.write_batch(batch)
            count += batch.num_rows
    for one in files.get_file_info(arrow_fs.FileSelector(folder)):
        # Versions before 0.2 wrote parts. Another audit may be at work: of what has no name yet, only the old goes.
        is_left = one.mtime_ns and one.mtime_ns < (time.time() - LEFT_S) * 1e9
        if one.base_name.startswith("part-") or (one.base_name.startswith(f".{ROWS}") and is_left):
            files.delete_file(one.path)
    return count


def exists(files: Any, path: str) -> bool:
    return bool(files.get_file_info(path).type != arrow_fs.FileType.NotFound)
