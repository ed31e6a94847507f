"""Workers on Kafka, over aiokafka: state in stores rebuilt from changelogs, and everything in transactions.

`App` is a whole job in a few lines, and `KafkaRuntime` what a `Member` calls. The way through the files: `stores` hold
what a task knows, `changelog` fills them, `active` takes a task over and processes it with what `clients` has ready,
`transaction` is what the worker's own code sees. `connection` says how the cluster is reached, `metadata` and `topics`
what is asked of it, `reading` what it means when a read brings nothing.
"""

from batonpass.worker.declaring import NotDeclared
from batonpass.worker.kafka.active import ChangelogShort
from batonpass.worker.kafka.app import App
from batonpass.worker.kafka.app_driver import AppTest
from batonpass.worker.kafka.changelog import RecordRefused
from batonpass.worker.kafka.clients import OffsetGone
from batonpass.worker.kafka.connection import KafkaConnection
from batonpass.worker.kafka.options import ActiveOptions
from batonpass.worker.kafka.outside import AppProducer
from batonpass.worker.kafka.runtime import KafkaRuntime
from batonpass.worker.kafka.serdes import BYTES, INT, JSON, TEXT, Serde, json_of, msgpack_of, optional
from batonpass.worker.kafka.stores import (
    MemoryStore,
    OpenStore,
    ReadableStore,
    RocksMemory,
    RocksStore,
    Store,
    StoreClosed,
    StoreFailed,
    StoreInTransaction,
    in_memory,
)
from batonpass.worker.kafka.subtopology import Process, Subtopology
from batonpass.worker.kafka.topics import ChangelogRefused, MissingPartition
from batonpass.worker.kafka.transaction import Context, OutputRefused, RecordTooLarge
from batonpass.worker.kafka.typed import KeyValueStore, Record, State, Table, Timer, Topic

__all__ = [
    "BYTES",
    "INT",
    "JSON",
    "TEXT",
    "ActiveOptions",
    "App",
    "AppProducer",
    "AppTest",
    "ChangelogRefused",
    "ChangelogShort",
    "Context",
    "KafkaConnection",
    "KafkaRuntime",
    "KeyValueStore",
    "MemoryStore",
    "MissingPartition",
    "NotDeclared",
    "OffsetGone",
    "OpenStore",
    "OutputRefused",
    "Process",
    "ReadableStore",
    "Record",
    "RecordRefused",
    "RecordTooLarge",
    "RocksMemory",
    "RocksStore",
    "Serde",
    "State",
    "Store",
    "StoreClosed",
    "StoreFailed",
    "StoreInTransaction",
    "Subtopology",
    "Table",
    "Timer",
    "Topic",
    "in_memory",
    "json_of",
    "msgpack_of",
    "optional",
]
