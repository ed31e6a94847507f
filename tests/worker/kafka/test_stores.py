"""Stores: records and position move together, and what is on disk is found again. No broker is needed."""

import math
import multiprocessing
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import rocksdict
from aiokafka import ConsumerRecord

from batonpass.worker.kafka import (
    Context,
    KafkaConnection,
    KafkaRuntime,
    RocksMemory,
    StoreInTransaction,
    Subtopology,
    stores,
)
from batonpass.worker.kafka.changelog import is_too_old
from batonpass.worker.kafka.stores import (
    KEEP_LEVEL_MS,
    MemoryStore,
    RocksStore,
    StateFolder,
    Store,
    StoreClosed,
    StoreFailed,
    progress,
)
from batonpass.worker.protocol import Progress

KINDS: dict[str, Callable[[Path], Store]] = {"memory": lambda _: MemoryStore(), "rocks": RocksStore}


@pytest.fixture(params=sorted(KINDS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    return KINDS[request.param](tmp_path / "0_0" / "changelog")


def test_a_store_is_a_beginning_of_its_changelog(store: Store) -> None:
    assert (store.position, store.level_ms, store.get(b"a")) == (None, 0, None)
    store.apply([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"")], 4)
    store.apply([(b"b", None)], 5)
    assert (store.position, store.get(b"a"), store.get(b"b"), store.get(b"c")) == (5, b"3", None, b"")
    store.wipe()
    assert (store.position, store.level_ms, list(store.scan())) == (None, 0, [])
    store.close()


def test_scans_are_ordered_and_do_not_see_what_comes_later(store: Store) -> None:
    store.apply([(key, key) for key in (b"b2", b"a", b"b10", b"c", b"b")], 5)
    scan = store.scan(b"b")
    first = next(scan)
    store.apply([(b"b3", b"late"), (b"b10", b"late")], 7)
    assert [first, *scan] == [(b"b", b"b"), (b"b10", b"b10"), (b"b2", b"b2")]
    store.close()


def test_a_scan_begins_where_it_is_told_to(store: Store) -> None:
    store.apply([(key, b"") for key in (b"a", b"b1", b"b3", b"c")], 4)
    within = StoreInTransaction(store)
    within.put(b"b0", b"")
    within.put(b"b4", b"")
    starts = {b"": [b"b1", b"b3"], b"b": [b"b1", b"b3"], b"b2": [b"b3"], b"b3": [b"b3"], b"c": []}
    for start, keys in starts.items():
        assert [key for key, _ in store.scan(b"b", start)] == keys
    assert [key for key, _ in within.scan(b"b", b"b2")] == [b"b3", b"b4"]
    store.close()


def test_changes_of_a_transaction_are_seen_in_it_alone(store: Store) -> None:
    store.apply([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], 3)
    within = StoreInTransaction(store)
    within.put(b"b", b"20")
    within.put(b"bb", b"21")
    within.delete(b"c")
    assert (within.get(b"a"), within.get(b"b"), within.get(b"c")) == (b"1", b"20", None)
    assert list(within.scan()) == [(b"a", b"1"), (b"b", b"20"), (b"bb", b"21")]
    assert list(store.scan()) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    store.apply(within.changes.items(), 6)
    assert list(store.scan()) == [(b"a", b"1"), (b"b", b"20"), (b"bb", b"21")]
    store.close()


def test_when_a_store_was_level_is_kept_though_nothing_is_written(tmp_path: Path) -> None:
    """Records do not make it any younger."""
    folder = tmp_path / "0_0" / "changelog"
    store = RocksStore(folder)
    store.note_level(1_000_000)
    store.apply([(b"a", b"1")], 5)
    assert store.level_ms == 1_000_000
    store.note_level(1_000_001)
    store.close()
    again = RocksStore(folder)
    assert (again.position, again.level_ms) == (5, 1_000_001)
    again.close()


def _stay_level_until_killed(folder: Path) -> None:
    store = RocksStore(folder)
    store.apply([], 5)
    for now_ms in range(1_000_000, 9_000_000, 1_000):
        store.note_level(now_ms)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_a_store_hardly_older_than_it_was(tmp_path: Path) -> None:
    """That a store is level is written every minute, and never as later than it was."""
    folder = tmp_path / "0_0" / "changelog"
    process = multiprocessing.get_context("spawn").Process(target=_stay_level_until_killed, args=(folder,))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    store = RocksStore(folder)
    assert 0 <= 8_999_000 - store.level_ms < KEEP_LEVEL_MS
    store.close()


def _write_until_killed(folder: Path) -> None:
    store = RocksStore(folder)
    for number in range(1_000_000):
        store.apply([(b"first", str(number).encode()), (b"second", str(number).encode())], number)
        if number == 1_000:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_records_and_position_in_step(tmp_path: Path) -> None:
    folder = tmp_path / "0_0" / "changelog"
    process = multiprocessing.get_context("spawn").Process(target=_write_until_killed, args=(folder,))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    store = RocksStore(folder)
    assert (store.position, store.get(b"first"), store.get(b"second")) == (1_000, b"1000", b"1000")
    store.close()


def test_a_store_has_one_process(tmp_path: Path) -> None:
    """A folder that another process holds is never wiped for that."""
    folder = tmp_path / "0_0" / "changelog"
    store = RocksStore(folder)
    store.apply([(b"a", b"1")], 1)
    with pytest.raises(Exception, match=r"(?i)lock"):
        RocksStore(folder)
    store.close()
    again = RocksStore(folder)
    assert again.get(b"a") == b"1"
    again.close()


def test_a_damaged_store_is_begun_anew(tmp_path: Path) -> None:
    """State that cannot be read any more is state to restore, not an error for ever."""
    folder = tmp_path / "0_0" / "changelog"
    store = RocksStore(folder)
    store.apply([(b"a", b"1")], 1)
    store.close()
    for manifest in folder.glob("MANIFEST-*"):
        manifest.write_bytes(b"not a manifest")
    damaged = RocksStore(folder)
    assert (damaged.position, damaged.get(b"a")) == (None, None)
    damaged.close()


def fill(folder: Path) -> list[Path]:
    """Make a store of two files, and return them."""
    store = RocksStore(folder)
    for first in (0, 30_000):
        store.apply([(f"k{n:06}".encode(), b"v" * 100) for n in range(first, first + 30_000)], first + 30_000)
        store._db.flush()
    store.close()
    return sorted(folder.glob("*.sst"))


def flip_bytes(path: Path) -> None:
    """Damage the middle of a file."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 3
    content[middle : middle + 8] = bytes(byte ^ 0xFF for byte in content[middle : middle + 8])
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["scan", "get"])
def test_damage_that_a_read_finds_is_an_error_and_the_store_is_begun_anew(tmp_path: Path, how: str) -> None:
    """A scan that breaks off is not a scan that is over."""
    folder = tmp_path / "0_0" / "changelog"
    flip_bytes(fill(folder)[0])
    state = StateFolder(tmp_path).open("0_0", ["changelog"])
    store = state.stores["changelog"]
    with pytest.raises(StoreFailed, match=r"store of changelog of 0_0: .*checksum mismatch"):
        _ = list(store.scan()) if how == "scan" else [store.get(f"k{n:06}".encode()) for n in range(60_000)]
    assert state.has_failed
    state.close()
    again = StateFolder(tmp_path).open("0_0", ["changelog"])
    assert (again.positions, list(again.stores["changelog"].scan())) == ({}, [])
    again.close()


@pytest.mark.parametrize("missing", ["MANIFEST-*", "CURRENT", "*.sst"])
def test_a_store_that_lacks_a_file_is_begun_anew(tmp_path: Path, missing: str) -> None:
    """As a copy of a volume may be."""
    folder = tmp_path / "0_0" / "changelog"
    fill(folder)
    next(folder.glob(missing)).unlink()
    store = RocksStore(folder)
    assert (store.position, list(store.scan())) == (None, [])
    store.close()


def put_position_of_two_bytes(folder: Path) -> None:
    store = RocksStore(folder)
    store._db.put(b"position", b"\0\0")
    store.close()


def put_folder_for_file(folder: Path) -> None:
    current = folder / "CURRENT"
    current.unlink()
    current.mkdir()


def put_file_for_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a backup went wrong")


def put_another_database(folder: Path) -> None:
    shutil.rmtree(folder)
    rocksdict.Rdict(str(folder)).close()


@pytest.mark.parametrize(
    "damage", [put_position_of_two_bytes, put_folder_for_file, put_file_for_folder, put_another_database]
)
def test_a_store_that_cannot_be_opened_for_whatever_is_in_its_folder_is_begun_anew(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "0_0" / "changelog"
    fill(folder)
    damage(folder)
    store = RocksStore(folder)
    assert (store.position, list(store.scan())) == (None, [])
    store.close()
    assert [path.name for path in folder.parent.iterdir()] == ["changelog"]


def test_a_name_of_a_folder_says_nothing_about_its_state(tmp_path: Path) -> None:
    """An error names the files: what is looked for in it may stand in a topic's name."""
    folder = tmp_path / "0_0" / "corruption-no such file or directory"
    store = RocksStore(folder)
    store.apply([(b"a", b"1")], 1)
    store._db.flush()
    with pytest.raises(Exception, match=r"(?i)lock"):
        RocksStore(folder)
    assert list(folder.glob("*.sst"))
    store.close()
    again = RocksStore(folder)
    assert again.get(b"a") == b"1"
    again.close()


def test_a_scan_that_somebody_holds_ends_when_its_store_closes(tmp_path: Path) -> None:
    folder = tmp_path / "0_0" / "changelog"
    store = RocksStore(folder)
    store.apply([(b"a", b"1"), (b"b", b"2")], 2)
    held = store.scan()
    next(held)
    store.close()
    with pytest.raises(StoreClosed):
        next(held)
    again = RocksStore(folder)
    held = again.scan()
    next(held)
    again.wipe()
    with pytest.raises(StoreClosed):
        next(held)
    again.apply([(b"c", b"3")], 5)
    assert list(again.scan()) == [(b"c", b"3")]
    again.close()


def test_a_wipe_that_failed_half_way_can_be_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RocksStore(tmp_path / "0_0" / "changelog")
    store.apply([(b"a", b"1")], 1)

    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    for step in ("discard", "_open"):
        with monkeypatch.context() as patch:
            patch.setattr(stores, step, fail)
            with pytest.raises(OSError, match="Too many"):
                store.wipe()
        assert store.position is None
    store.wipe()
    store.apply([(b"b", b"2")], 1)
    assert list(store.scan()) == [(b"b", b"2")]
    store.close()


def _write_while_there_is_no_room(folder: Path) -> None:
    """Exit with 0 if the state can be written again once there is room."""
    states = StateFolder(folder)
    state = states.open("0_0", ["changelog"])
    state.stores["changelog"].apply([(b"a", b"1")], 1)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        state.stores["changelog"].apply([(b"b", os.urandom(1 << 17))], 2)
    except StoreFailed:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    with suppress(StoreFailed):
        state.close()
    state = states.open("0_0", ["changelog"])
    state.stores["changelog"].apply([(b"c", b"3")], 2)
    found = dict(state.stores["changelog"].scan())
    state.close()
    os._exit(0 if found == {b"a": b"1", b"c": b"3"} else 1)


def test_a_store_writes_again_once_there_is_room_and_it_was_opened_anew(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_write_while_there_is_no_room, args=(tmp_path,))
    process.start()
    process.join(30)
    assert process.exitcode == 0


def test_which_topic_a_store_was_read_from_is_kept(tmp_path: Path) -> None:
    states = StateFolder(tmp_path)
    state = states.open("0_0", ["changelog"])
    assert state.topic_id("changelog") is None
    state.note_topic("changelog", "OGLpDVXHRyafP_KnE9jhjg")
    state.close()
    again = states.open("0_0", ["changelog"])
    assert again.topic_id("changelog") == "OGLpDVXHRyafP_KnE9jhjg"
    again.close()


def test_a_store_that_failed_says_so_to_whoever_did_not_heed_it(tmp_path: Path) -> None:
    class Fails(MemoryStore):
        def get(self, key: bytes) -> bytes | None:
            raise OSError(f"no {key!r}")

    state = StateFolder(tmp_path, lambda _: Fails()).open("0_0", ["changelog"])
    with pytest.raises(StoreFailed, match="the store of changelog of 0_0: no b'a'"):
        state.stores["changelog"].get(b"a")
    with pytest.raises(StoreFailed, match="has failed before"):
        state.raise_if_failed()
    state.close()


def test_a_store_whose_place_cannot_be_told_has_failed(tmp_path: Path) -> None:
    class Fails(MemoryStore):
        def __getattribute__(self, name: str) -> Any:
            if name == "position":
                raise OSError("no place")
            return super().__getattribute__(name)

    state = StateFolder(tmp_path, lambda _: Fails()).open("0_0", ["changelog"])
    with pytest.raises(StoreFailed, match="no place"):
        _ = state.positions
    assert state.has_failed


def test_a_wrong_question_is_no_failure_of_the_store(tmp_path: Path) -> None:
    state = StateFolder(tmp_path).open("0_0", ["changelog"])
    wrong: Any = "k1"
    with pytest.raises(TypeError, match="are bytes, and not 'k1'"):
        state.stores["changelog"].get(wrong)
    for where in ({"prefix": wrong}, {"start": wrong}):
        with pytest.raises(TypeError, match="are bytes, and not 'k1'"):
            list(state.stores["changelog"].scan(**where))
    assert not state.has_failed
    state.close()


@pytest.mark.parametrize(
    ("age_ms", "is_kept"), [(0, True), (-1_000, True), (-120_000, False), (1_000_000, False), (833_000, True)]
)
def test_state_from_the_future_has_no_known_age(age_ms: int, *, is_kept: bool) -> None:
    """A clock that was ahead when it was level says nothing about how old it is."""
    now_ms = 2_000_000_000_000
    assert is_too_old(now_ms - age_ms, 1_000_000, now_ms) is not is_kept
    assert not is_too_old(now_ms - age_ms, math.inf, now_ms)


def test_a_folder_knows_its_tasks(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    assert folder.tasks() == []
    for task in ("0_10", "0_9", "orders_1"):
        state = folder.open(task, ["changelog"])
        state.stores["changelog"].apply([], 7)
        assert state.positions == {"changelog": 7}
        state.close()
    for odd in ("lost+found", "0_007", "0_\N{ARABIC-INDIC DIGIT THREE}"):
        (tmp_path / "state" / odd).mkdir()
    assert folder.tasks() == ["0_10", "0_9", "orders_1"]
    folder.remove("0_10")
    assert folder.tasks() == ["0_9", "orders_1"]


async def test_state_that_a_release_has_left_out_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing else would: it is never removed, for an earlier release may come back."""

    async def process(_record: ConsumerRecord, _context: Context) -> None:
        """Do nothing."""

    for name in ("1_0/kept", "0_0/.discarded-1", "0_0/sums", "old_3/store"):
        (tmp_path / name).mkdir(parents=True)
    part = Subtopology(sources=("source",), process=process)
    runtime = KafkaRuntime(KafkaConnection(bootstrap_servers="none:1"), "g", {"0": part}, folder=tmp_path)
    assert await runtime.on_disk() == {}
    named = ", ".join(str(tmp_path / name) for name in ("0_0/sums", "1_0/kept", "old_3/store"))
    assert f"nothing in this program has the state in {named}, as after" in caplog.text


async def test_state_that_moved_away_is_measured_and_removed(tmp_path: Path) -> None:
    part = Subtopology(sources=("orders",), process=_nothing, changelogs={"totals": "changelog"})
    connection = KafkaConnection(bootstrap_servers="127.0.0.1:1")
    runtime = KafkaRuntime(connection, "orders", {"0": part}, folder=tmp_path)
    for task in ("0_1", "0_2", "other_1"):
        state = StateFolder(tmp_path).open(task, ["changelog"])
        state.stores["changelog"].apply([(b"a", b"1" * 1_000)], 7)
        state.close()
    sizes = await runtime.disk_bytes()
    assert sizes.keys() == {"0_1", "0_2"}
    assert min(sizes.values()) > 1_000
    await runtime.remove_state("0_1")
    assert (await runtime.disk_bytes()).keys() == {"0_2"}
    assert (tmp_path / "other_1").is_dir()


async def _nothing(_record: ConsumerRecord, _context: Context) -> None:
    """Process nothing."""


def test_progress_is_known_only_with_every_changelog() -> None:
    assert progress({}, {}, ("a",)) == Progress()
    assert progress({"a": 5}, {"a": 9}, ("a",)) == Progress(position=5, end_offset=9)
    assert progress({"a": 5}, {"a": 9, "b": 3}, ("a", "b")) == Progress()
    both = progress({"a": 5, "b": 1}, {"a": 9, "b": 3}, ("a", "b"))
    assert both.remaining() == 6


def used_bytes(memory: RocksMemory) -> int:
    """Return what the stores that share a limit take now."""
    return int(memory._cache.get_usage())


def test_stores_share_a_limit_of_memory(tmp_path: Path) -> None:
    limit = 2 << 20
    memory = RocksMemory(limit)
    stores = [RocksStore(tmp_path / f"0_{number}" / "changelog", memory=memory) for number in range(8)]
    value, position, most = os.urandom(10_000), 0, 0
    # Files are written beside it, so memory is above the limit for a moment.
    while position < 200 or used_bytes(memory) > limit:
        position += 1
        for store in stores:
            store.apply([(str(position).encode(), value if position < 200 else b"")], position)
        most = max(most, used_bytes(memory))
        assert position < 10_000
        time.sleep(0.001 if position >= 200 else 0)
    assert most > limit // 2
    assert all(store.get(b"1") == value for store in stores)
    for store in stores:
        store.close()


def test_a_store_that_is_found_again_shares_the_limit_too(tmp_path: Path) -> None:
    """What is read from the files of an earlier process counts as what a new store reads does."""
    written, value = 100, os.urandom(10_000)
    before = RocksStore(tmp_path / "changelog", memory=RocksMemory())
    before.apply([(str(number).encode(), value) for number in range(written)], written)
    before.close()
    memory = RocksMemory()
    found = RocksStore(tmp_path / "changelog", memory=memory)
    assert len(list(found.scan())) == written
    assert used_bytes(memory) > written * len(value)
    found.close()


def test_state_is_where_it_was_wherever_the_program_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = StateFolder(Path("state"))
    state = folder.open("0_0", ["a"])
    state.stores["a"].apply([(b"k", b"v")], 1)
    state.close()
    monkeypatch.chdir("/")
    assert folder.tasks() == ["0_0"]
    state = folder.open("0_0", ["a"])
    assert state.positions == {"a": 1}
    state.close()


def test_state_that_another_process_has_open_is_not_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two workers in one folder: the tasks of each are unused by the other."""
    one, other = StateFolder(tmp_path), StateFolder(tmp_path)
    state = one.open("0_0", ["a", "b"])
    state.stores["a"].apply([(b"k", b"v")], 1)
    other.remove("0_0")
    assert "the state of 0_0 stays: another process works in" in caplog.text
    state.stores["a"].apply([(b"k", b"w")], 2)
    state.close()
    assert other.tasks() == ["0_0"]
    other.remove("0_0")
    other.remove("0_0")
    assert list(tmp_path.iterdir()) == []


def test_what_rocksdb_says_of_a_store_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes some kilobytes each time that it writes a file, and every ten minutes."""
    monkeypatch.setattr(stores, "LOG_BYTES_MAX", 1 << 16)
    store, most = RocksStore(tmp_path / "changelog"), 0
    for position in range(60):
        store.apply([(b"k", b"%d" % position)], position)
        store._db.flush()
        most = max(most, sum(path.stat().st_size for path in (tmp_path / "changelog").glob("LOG*")))
    # What it writes at once may be beyond, and the one before goes once there is the next.
    assert most < 3 * (1 << 16)
    store.close()
