"""Traces to versioned JSON and back: everything that a decision was based on, so that it can be made again (L10)."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from batonpass.core.decide import HANDLERS, Decision, decide
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import EndOffsets, Input
from batonpass.core.state.model import Group
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import EndOffset, MemberSoft, Refused, Soft

TRACE_VERSION: Final = 2
"""The version in which traces are written. A reader reports a trace of a later version, and replays nothing of it.

Version 1 had one input, as ``kind`` and ``item``. It is read for ever, as a batch of one.
"""


class UnreadableTrace(Exception):
    """A stored trace is of another version, or damaged."""


class SoftDelta(msgspec.Struct, frozen=True):
    """What changed in soft state since the trace before; ``from_empty``: since the group was loaded.

    A value of None says that the entry is gone.
    """

    from_empty: bool
    started_ms: int
    judge_from_ms: int
    wake_ms: int | None
    bound_target: bool
    members: Mapping[MemberId, MemberSoft | None]
    end_offsets: tuple[tuple[str, int, EndOffset | None], ...] = ()
    begin_offsets: tuple[tuple[str, int, int | None], ...] = ()
    left_before_joining: Mapping[MemberId, int | None] = {}
    listens_since_ms: int = 0
    placed_without: tuple[MemberId, ...] = ()
    refused: Refused | None = None
    loads_read_ms: int = 0
    load_tried_ms: int = 0
    restless: MemberId | None = None


_TIMES: Final = ("started_ms", "judge_from_ms", "wake_ms", "listens_since_ms", "loads_read_ms", "load_tried_ms")
"""The instants of soft state, which a trace has as they are."""


class Trace(msgspec.Struct, frozen=True):
    """Everything that a writing decision was based on, except the group, which follows from the records before it.

    ``code`` identifies the program that decided; ``version`` is how many records the group had before.
    """

    inputs: tuple[Input, ...]
    now_ms: int
    version: int
    soft: SoftDelta
    policy: Policy
    code: str
    decide_ms: float = 0.0


def soft_delta(older: Soft | None, soft: Soft) -> SoftDelta:
    """Return what turns ``older`` (None: empty soft state) into ``soft``."""
    base = older or Soft()
    ends = soft.end_offsets.changed_since(base.end_offsets)
    begins = soft.begin_offsets.changed_since(base.begin_offsets)
    return SoftDelta(
        from_empty=older is None,
        bound_target=soft.target_is_provisional,
        members=soft.members.changed_since(base.members),
        end_offsets=tuple((topic, partition, end) for (topic, partition), end in sorted(ends.items())),
        begin_offsets=tuple((topic, partition, begin) for (topic, partition), begin in sorted(begins.items())),
        left_before_joining=soft.left_before_joining.changed_since(base.left_before_joining),
        placed_without=tuple(sorted(soft.placed_without)),
        refused=soft.refused,
        restless=soft.restless,
        **{name: getattr(soft, name) for name in _TIMES},
    )


def soft_after(older: Soft, delta: SoftDelta) -> Soft:
    """Return the soft state that a delta leads to from the one before it."""
    base = Soft() if delta.from_empty else older
    return Soft(
        members=base.members.updated(delta.members),
        end_offsets=base.end_offsets.updated({(topic, part): end for topic, part, end in delta.end_offsets}),
        begin_offsets=base.begin_offsets.updated({(topic, part): at for topic, part, at in delta.begin_offsets}),
        target_is_provisional=delta.bound_target,
        left_before_joining=base.left_before_joining.updated(delta.left_before_joining),
        placed_without=frozenset(delta.placed_without),
        refused=delta.refused,
        restless=delta.restless,
        **{name: getattr(delta, name) for name in _TIMES},
    )


def encode_trace(trace: Trace) -> bytes:
    inputs = tuple([_StoredInput(_KINDS[type(item)], _stored(item)) for item in trace.inputs])
    return _encoder.encode(
        _Stored(trace.now_ms, trace.version, trace.soft, trace.policy, trace.code, trace.decide_ms, inputs)
    )


def decode_trace(version: int, payload: bytes) -> Trace:
    """Return the trace that was stored.

    Raises:
        UnreadableTrace: when it is of a version that is not known, or its payload does not fit.
    """
    if not 1 <= version <= TRACE_VERSION:
        raise UnreadableTrace(f"a trace of version {version}; this program reads up to version {TRACE_VERSION}")
    try:
        if version == 1:
            payload = _of_several(payload)
        stored = _decoder.decode(payload)
        inputs = tuple([_input(one) for one in stored.inputs])
    except KeyError as error:
        raise UnreadableTrace(f"no input of kind {error} is known") from error
    except msgspec.MsgspecError as error:
        raise UnreadableTrace(f"a trace that does not fit: {error}") from error
    return Trace(inputs, stored.now_ms, stored.version, stored.soft, stored.policy, stored.code, stored.decide_ms)


def _of_several(payload: bytes) -> bytes:
    """Return a trace of version 1, which has one input, as one of version 2."""
    fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    one = {name: fields.pop(name) for name in ("kind", "item") if name in fields}
    return _encoder.encode({**fields, "inputs": [one]})


def _stored(item: Input) -> object:
    if isinstance(item, EndOffsets):
        return _StoredEnds(
            _listed(item.offsets),
            item.read_ms,
            _listed(item.begin_offsets),
            _listed(item.high_watermarks),
            item.topic_ids,
        )
    return item


def _input(stored: "_StoredInput") -> Input:
    item = msgspec.convert(stored.item, _ITEM_TYPES[stored.kind], strict=True)
    if isinstance(item, _StoredEnds):
        return EndOffsets(
            _by_partition(item.offsets),
            item.read_ms,
            _by_partition(item.begin_offsets),
            _by_partition(item.high_watermarks),
            item.topic_ids,
        )
    return cast("Input", item)


_Offsets = tuple[tuple[str, int, int], ...]


class _StoredEnds(msgspec.Struct, frozen=True):
    """End offsets for JSON, where a key cannot be a pair."""

    offsets: _Offsets
    read_ms: int
    begin_offsets: _Offsets = ()
    high_watermarks: _Offsets = ()
    topic_ids: Mapping[str, str] = {}


def _listed(offsets: Mapping[tuple[str, int], int]) -> _Offsets:
    return tuple((topic, partition, offset) for (topic, partition), offset in sorted(offsets.items()))


def _by_partition(offsets: _Offsets) -> dict[tuple[str, int], int]:
    return {(topic, partition): offset for topic, partition, offset in offsets}


class _StoredInput(msgspec.Struct, frozen=True):
    kind: str
    item: Any


class _Stored(msgspec.Struct, frozen=True):
    now_ms: int
    version: int
    soft: SoftDelta
    policy: Policy
    code: str
    decide_ms: float
    inputs: tuple[_StoredInput, ...]


def _kind(item_type: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", item_type.__name__).lower()


_KINDS: Final[Mapping[type, str]] = {item_type: _kind(item_type) for item_type in HANDLERS}
_ITEM_TYPES: Final[Mapping[str, Any]] = {
    kind: _StoredEnds if item_type is EndOffsets else item_type for item_type, kind in _KINDS.items()
}
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Stored)


def replay(group: Group, traced: Soft, trace: Trace) -> tuple[Decision, Soft]:
    """Return the decision that the trace leads to, byte for byte (L10), and the soft state that it was made on.

    ``group`` is what the first ``trace.version`` records add up to, ``traced`` the soft state that the trace before was
    made on (empty for the first one).
    """
    soft = soft_after(traced, trace.soft)
    return decide(group, soft, trace.inputs, trace.now_ms, trace.policy), soft
