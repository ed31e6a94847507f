"""The code version names the program that decides."""

import re

from batonpass import __version__
from batonpass.codec.code import code_version


def test_it_is_the_version_and_a_digest() -> None:
    """The version is followed by twelve hexadecimal digits, the same at every call."""
    found = code_version()
    assert re.fullmatch(re.escape(__version__) + r"\+[0-9a-f]{12}", found)
    assert code_version() == found
