"""What can be read of a group says how its measured load lies: of members, of the whole, and what would move."""

from tests.api.conftest import Api
from tests.core.test_load import begin, skewed, until_hot

from batonpass.codec.views import group_explanation_body, member_body, next_owners_of
from batonpass.core.handover.view import View
from batonpass.dry_run.load import load_status
from batonpass.explain.group import explain_group


def test_members_and_the_group_are_shown_with_their_load() -> None:
    scene = begin(balance_by="shadow")
    until_hot(scene, skewed(scene))
    group, load = scene.group, load_status(scene.group, scene.soft)
    assert load is not None
    shown = [
        member_body(scene.view(), scene.member(name), next_owners_of(group), load)["load"] for name in ("m0", "m1")
    ]
    assert shown == [load.by_member[one] for one in sorted(group.members)]
    found = explain_group(View(group, scene.soft, scene.now_ms), limit=10)
    body = group_explanation_body(group, found, limit=10)["load"]
    assert body["imbalance"] == load.imbalance
    assert body["members_needed"] == load.members_needed
    assert body["hottest_task"] == load.hottest
    assert body["hot_since"] is not None


async def test_a_group_of_declared_weights_has_no_measured_load(api: Api) -> None:
    await api.declare()
    await api.join("m1")
    assert (await api.call("GET", "/orders/explain")).json()["load"] is None
    assert (await api.call("GET", "/orders/members/m1")).json()["load"] is None
    assert (await api.call("POST", "/orders/plan", {})).json()["for_load"] == []
