"""The settings of one coordinator process, from environment variables that begin with ``BATONPASS_``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What may be set for a process; for a group it is the group's config. Every value has a range.

    ``port`` 0 takes any free port.
    """

    model_config = SettingsConfigDict(env_prefix="BATONPASS_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8420
    body_bytes_max: Annotated[int, Field(ge=1_024, le=256 * 1_048_576)] = 8 * 1_048_576
    groups_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    members_max: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    tasks_max: Annotated[int, Field(ge=1, le=10_000_000)] = 200_000
    tasks_per_heartbeat_max: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    requests_waiting_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    check_laws: bool = True
