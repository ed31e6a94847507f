"""The code version names the program that decides."""

import re

from batonpass import __version__
from batonpass.codec.code import code_version


def test_a_code_version_is_the_version_and_a_digest_the_same_at_every_call() -> None:
    found = code_version()
    assert re.fullmatch(re.escape(__version__) + r"\+[0-9a-f]{12}", found)
    assert code_version() == found
