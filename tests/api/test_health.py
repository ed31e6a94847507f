"""How a group is, as every answer about it says."""

from typing import Any

from tests.api.conftest import Api


async def healths(api: Api) -> list[dict[str, Any]]:
    """Return the health of ``orders`` as the list, the group and its explanation say it."""
    listed = (await api.call("GET", "")).json()["groups"][0]["health"]
    shown, explained = (await api.call("GET", "/orders")).json(), (await api.call("GET", "/orders/explain")).json()
    assert explained["sentences"][0] == explained["health"]["sentence"]
    return [listed, shown["health"], explained["health"]]


async def test_every_answer_about_a_group_says_the_same_of_its_health(api: Api) -> None:
    """Protocol 12.8: the level, what is most wrong, since when, why in the worker's words, and what helps."""
    await api.declare(partitions=1)
    first, *others = await healths(api)
    assert others == [first, first]
    assert (first["level"], first["what"]) == ("not-deployed", "not-deployed")
    epoch = (await api.join("m1", instance_id="pod-1")).json()["member_epoch"]
    await api.beat("m1", 1, epoch, {"0_0": {"role": "active", "state": "running"}})
    first, *others = await healths(api)
    assert (first["level"], first["tasks"], first["heard"]) == ("at-rest", {"running": 1}, 1)
    assert others == [first, first]
    failed_at_ms = api.clock.at_ms = api.clock.at_ms + 1_000
    await api.beat("m1", 2, epoch, {"0_0": {"role": "active", "state": "failed", "detail": "checksum mismatch"}})
    api.clock.at_ms += 2_000
    first, *others = await healths(api)
    assert others == [first, first]
    assert (first["level"], first["what"]) == ("trouble", "not-processed")
    assert first["sentence"] == "1 of 1 task is not processed: 1 failed."
    cause = first["cause"]
    assert (cause["task"], cause["instance_id"], cause["detail"]) == ("0_0", "pod-1", "checksum mismatch")
    assert first["since"] == cause["at"] == first["incident"]["at"]
    assert failed_at_ms == 1_800_000_001_000
    assert first["runbook"] == "task-not-running"
    await api.call("POST", "/orders/members/m1/drain")
    drained = (await healths(api))[0]
    assert drained["what"] == "not-processed"
    await api.call("DELETE", "/orders/members/m1")
    left = (await healths(api))[0]
    assert (left["level"], left["what"]) == ("attention", "all-left")


async def test_a_command_line_can_be_pasted_into_a_shell(api: Api) -> None:
    """Protocol 12.8: whatever an instance is called."""
    await api.declare(partitions=1)
    await api.join("m1", instance_id="pod-$(1)")
    await api.call("POST", "/orders/members/m1/drain")
    (remedy,) = (await healths(api))[0]["remedies"]
    assert remedy == {
        "action": "undrain",
        "member": "m1",
        "task": None,
        "command": "batonpass undrain orders 'pod-$(1)'",
    }
