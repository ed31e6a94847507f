"""Where an audit's files go: a folder, or a store that Arrow knows; a day's files are replaced together, never in part.

Files are written beside their place, in a folder whose name readers skip, and put into the place when all of them are
there. In a folder that is one rename; in a store, where renaming is copying, the old files go first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyarrow import parquet as pq

LEFT_S: Final = 24 * 3_600
"""A folder that an audit left unfinished counts as abandoned if nothing has changed in it for so long."""


def located(out: str) -> tuple[Any, str]:
    """Return the file system that ``out`` is on, and the path there.

    Raises:
        OSError: when its kind is not known, or it cannot be reached.
    """
    if "://" not in out:
        return arrow_fs.LocalFileSystem(), str(Path(out).absolute())
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


def write_batches(files: Any, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches to a file, in a folder that is made if it is not there; return how many rows they had.

    Raises:
        OSError: when it cannot be written.
    """
    files.create_dir(path.rpartition("/")[0], recursive=True)
    count = 0
    with files.open_output_stream(path) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as out:
        for batch in batches:
            out.write_batch(batch)
            count += batch.num_rows
    return count


def unfinished(day: object) -> str:
    """Return a name for a day's folder while it is written."""
    return f".day={day}.{uuid4().hex}"


def exists(files: Any, path: str) -> bool:
    """Return whether there is a file or a folder."""
    return bool(files.get_file_info(path).type != arrow_fs.FileType.NotFound)


def within(files: Any, folder: str) -> list[Any]:
    """Return what lies in a folder; nothing if it is not there."""
    return list(files.get_file_info(arrow_fs.FileSelector(folder, allow_not_found=True)))


def remove(files: Any, folder: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    if exists(files, folder):
        files.delete_dir(folder)


def replace(files: Any, given: str, place: str) -> None:
    """Put a folder into a place; it replaces the one that is there, if any.

    Raises:
        OSError: when it cannot be put there; in a file system the old one is there again.
    """
    try:
        if isinstance(files, arrow_fs.LocalFileSystem):
            _exchange(files, given, place)
            return
        remove(files, place)
        files.create_dir(place)
        for one in within(files, given):
            files.move(one.path, f"{place}/{one.base_name}")
    except OSError as error:
        said = f"{place} cannot be written; look who may write there and how full it is, and run it again: {error}"
        raise OSError(said) from error


def _exchange(files: Any, given: str, place: str) -> None:
    parent, _, name = place.rpartition("/")
    before = f"{parent}/.{name}.{uuid4().hex}" if exists(files, place) else None
    if before is not None:
        files.move(place, before)
    try:
        files.move(given, place)
    except OSError:
        if before is not None:
            files.move(before, place)
        raise
    if before is not None:
        files.delete_dir(before)


def sweep(files: Any, table: str) -> None:
    """Remove the folders of a table that killed audits left unfinished, for days that are in their places.

    Another audit may be at work beside this one: folders that changed lately stay.
    """
    for one in within(files, table):
        # Some stores have no times of folders.
        is_old = one.base_name.startswith(".day=") and one.mtime_ns and one.mtime_ns < (time.time() - LEFT_S) * 1e9
        if is_old and exists(files, f"{table}/{one.base_name[1:].rpartition('.')[0]}"):
            files.delete_dir(one.path)
