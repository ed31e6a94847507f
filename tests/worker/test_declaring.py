"""A worker that may not declare its group says what it lacks."""

import logging

import httpx2 as httpx
import pytest

from batonpass.worker.declaring import NotDeclared, declare
from batonpass.worker.options import Options
from batonpass.worker.testing import LocalCoordinator


@pytest.mark.parametrize(("status", "kind"), [(401, "unauthenticated"), (403, "forbidden")])
async def test_a_token_that_does_not_do_is_asked_for_by_the_variable_that_names_it(status: int, kind: str) -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json={"type": kind, "status": status, "detail": "this call needs a token"})

    with pytest.raises(NotDeclared) as refused:
        await declare(["http://a"], "orders", [], {}, Options(transport=httpx.MockTransport(refuse)))
    assert str(refused.value) == (
        "group orders cannot be declared: this call needs a token. BATONPASS_TOKEN is to have a token of role worker for "
        "it: `batonpass token create NAME --role worker --group orders` makes one"
    )


async def test_settings_that_the_group_has_otherwise_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """They count when somebody declares the group; later they would be ignored without a word."""
    asked = {"num_standby_replicas": 1, "acceptable_recovery_lag": 100, "num_standby_replica": 1}
    caplog.set_level(logging.INFO)
    async with LocalCoordinator() as coordinator:
        await coordinator.declare("orders", acceptable_recovery_lag=100)
        options = Options(transport=coordinator.transport())
        parts = (await coordinator.describe("orders"))["topology"]["subtopologies"]
        await declare([coordinator.url], "orders", parts, asked, options)
        [line] = [one.getMessage() for one in caplog.records if "config" in one.getMessage()]
        assert line == (
            "group orders has its own settings, and not those of this program's config: num_standby_replicas is 0, and "
            "here it is 1; num_standby_replica is unknown, and here it is 1 (batonpass groups declare changes them)"
        )
        caplog.clear()
        await declare([coordinator.url], "orders", parts, {"acceptable_recovery_lag": 100}, options)
        assert not [one for one in caplog.records if "config" in one.getMessage()]


@pytest.mark.parametrize("url", ["127.0.0.1:8420", "batonpass"])
async def test_an_address_that_is_no_url_is_refused_with_the_form_of_one(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not the URL of a coordinator, as http://127\.0\.0\.1:8420 is"):
        await declare([url], "orders", [], {}, Options())
