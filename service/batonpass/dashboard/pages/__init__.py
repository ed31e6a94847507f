"""The pages: each asks the coordinator, has the answers shaped, and renders a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from batonpass.dashboard.desk import Page
from batonpass.dashboard.pages.group import show_group
from batonpass.dashboard.pages.groups import show_groups

PAGES: Final[Mapping[str, Page]] = {
    "/": show_groups,
    "/groups/{group}": show_group,
}
"""Every page by its path."""
