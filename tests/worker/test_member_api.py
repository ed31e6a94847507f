"""The public names, their arguments, and what they need."""

import dataclasses
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import cast, get_type_hints

import pytest

import batonpass.worker as sdk
from batonpass.worker import Exit, MemberOptions, Options, tls_context
from batonpass.worker.clock import system_clock
from batonpass.worker.protocol import LeaveMode


def test_every_name_can_be_imported() -> None:
    homes = [name for names in sdk._HOMES.values() for name in names]
    assert sorted(homes) == sorted(sdk.__all__)
    assert all(getattr(sdk, name) is not None for name in sdk.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = sdk.nothing  # type: ignore[attr-defined]


def test_the_arguments_are_those_that_are_described() -> None:
    """What a type checker accepts is what is taken at run time."""
    described = {one.name for one in dataclasses.fields(Options)}
    assert set(MemberOptions.__annotations__) == described
    assert get_type_hints(MemberOptions) == {name: get_type_hints(Options)[name] for name in described}


def test_the_sdk_over_http_imports_nothing_of_the_service() -> None:
    foreign = (
        "{'fastapi', 'uvicorn', 'sqlalchemy', 'aiokafka', 'pydantic', 'batonpass.core.decide', 'batonpass.runtime'}"
    )
    script = f"import batonpass.worker as w, sys; [getattr(w, n) for n in w.__all__]; print(sorted({foreign} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Options(), Exit.LEAVE),
        (Options(instance_id="orders-0"), Exit.RESTART),
        (Options(instance_id="orders-0", on_exit=Exit.DRAIN), Exit.DRAIN),
    ],
)
def test_an_instance_that_can_come_back_keeps_its_place(given: Options, expected: Exit) -> None:
    """Without an instance id there is nothing to come back to."""
    assert given.exit is expected


def test_choices_may_be_named_and_what_there_is_not_is_refused() -> None:
    assert Options(on_exit=cast("Exit", "drain")).exit.mode is LeaveMode.LEAVE
    for name, choices in (("on_exit", "leave, restart, drain"), ("on_lease_lost", "stop, continue")):
        given = cast("MemberOptions", {name: "drian"})
        with pytest.raises(ValueError, match=f"{name} is one of {choices}, and not 'drian'"):
            Options(**given)


@pytest.mark.parametrize("name", sorted(one for one in MemberOptions.__annotations__ if one.endswith("_ms")))
@pytest.mark.parametrize("wrong", [-1, 0.5, "30"])
def test_a_duration_that_means_nothing_is_refused(name: str, wrong: object) -> None:
    given = cast("MemberOptions", {name: wrong})
    with pytest.raises(ValueError, match=f"{name} is a whole number from 0 on, and not"):
        Options(**given)


def test_the_clock_counts_time_in_which_the_machine_is_suspended() -> None:
    """On Linux the boot-time clock does not stand still meanwhile."""
    clock = system_clock()
    first = clock()
    time.sleep(0.02)
    assert 10 <= clock() - first < 5_000
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(clock() - time.clock_gettime(time.CLOCK_BOOTTIME) * 1_000) < 1_000


def test_other_systems_have_clocks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clocks of macOS and Windows count suspended time themselves."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    for platform in ("darwin", "win32"):
        monkeypatch.setattr(sys, "platform", platform)
        clock = system_clock()
        assert clock() <= clock()


def test_authorities_and_a_certificate_of_ones_own_can_be_given(tmp_path: Path) -> None:
    assert tls_context().verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(OSError, match="No such file"):
        tls_context(ca_file=tmp_path / "missing.pem")
    (tmp_path / "wrong.pem").write_text("nothing")
    with pytest.raises(ssl.SSLError):
        tls_context(cert_file=tmp_path / "wrong.pem")
