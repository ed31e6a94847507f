"""The error table of the protocol, and errors as values."""

import pytest

from batonpass.core.state import errors as e

# docs/protocol.md, section 10: type, status, and what the caller should do next.
TABLE: list[tuple[type[e.ProtocolError], str, int, str]] = [
    (e.UnknownGroup, "unknown-group", 404, "fix"),
    (e.UnknownMember, "unknown-member", 404, "stop-and-rejoin"),
    (e.Gone, "gone", 409, "stop-and-rejoin"),
    (e.Fenced, "fenced", 409, "stop-and-rejoin"),
    (e.FencedInstanceId, "fenced-instance-id", 409, "stop"),
    (e.StaleMemberEpoch, "stale-member-epoch", 409, "retry"),
    (e.InstanceIdInUse, "instance-id-in-use", 409, "retry"),
    (e.InvalidTopology, "invalid-topology", 422, "fix"),
    (e.InvalidConfig, "invalid-config", 422, "fix"),
    (e.InvalidRequest, "invalid-request", 422, "fix"),
    (e.GroupNotEmpty, "group-not-empty", 409, "fix"),
    (e.NotSafeToStop, "not-safe-to-stop", 409, "retry"),
    (e.PreconditionRequired, "precondition-required", 428, "fix"),
    (e.PreconditionFailed, "precondition-failed", 412, "fix"),
    (e.LimitExceeded, "limit-exceeded", 429, "retry"),
    (e.TooLarge, "limit-exceeded", 413, "fix"),
]


@pytest.mark.parametrize(("kind", "name", "status", "action"), TABLE, ids=[row[1] for row in TABLE])
def test_each_error_is_the_row_of_the_table(kind: type[e.ProtocolError], name: str, status: int, action: str) -> None:
    error = kind("why")
    assert (error.type, error.status, error.action) == (name, status, action)
    assert error.title
    assert (error.detail, error.errors, error.retry_after_ms, error.answer) == ("why", (), None, None)
    assert str(error) == "why"


def test_no_error_is_missing_from_the_table() -> None:
    own = {kind for kind in vars(e).values() if isinstance(kind, type) and issubclass(kind, e.ProtocolError)}
    assert own - {e.ProtocolError} == {row[0] for row in TABLE}
    assert len({(row[1], row[2]) for row in TABLE}) == len(TABLE)


def test_errors_are_equal_by_kind_and_content() -> None:
    error = e.Gone("it left", errors=[("a", "b")], retry_after_ms=5, answer="x")
    same = e.Gone("it left", errors=[("a", "b")], retry_after_ms=5, answer="x")
    assert error == same
    assert hash(error) == hash(same)
    assert error != e.Fenced("it left", errors=[("a", "b")], retry_after_ms=5, answer="x")
    assert error != e.Gone("it left", errors=[("a", "b")], retry_after_ms=6, answer="x")
    assert error != e.Gone("it left", errors=[("a", "c")], retry_after_ms=5, answer="x")
    assert error != e.Gone("it left", errors=[("a", "b")], retry_after_ms=5, answer="y")
    assert error != "it left"


def test_an_error_can_be_raised_and_caught_as_one() -> None:
    with pytest.raises(e.ProtocolError, match="has changed"):
        raise e.PreconditionFailed("the group has changed")
