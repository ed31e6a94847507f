"""What a process that this one starts finds in its environment: never by chance what a shell or a system has set.

Its text is UTF-8 wherever it runs. Java knows no other way to be told how names of files are written, and in some
languages a lower-case letter is another one, which breaks programs.
"""

import os
import pwd
from pathlib import Path
from typing import Final

LOCALE: Final = "C.UTF-8"
OF_THE_LOCALE: Final = ("LANG", "LANGUAGE", "PYTHONIOENCODING", "PYTHONCOERCECLOCALE")


def home() -> Path | None:
    """Return this user's home folder; None if it has none, as the numbers have that OpenShift runs containers under."""
    named = os.environ.get("HOME", "")
    if named.startswith("/"):
        return Path(named)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def is_nameless() -> bool:
    """Whether the system does not know this user by name, without which neither Postgres nor Spark runs."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return True
    return False


def child_environment(**more: str) -> dict[str, str]:
    """Return the environment of a program of this package, or of one that fetches something for it, and ``more``."""
    kept = {name: said for name, said in os.environ.items() if name not in OF_THE_LOCALE and not name.startswith("LC_")}
    # It imports nothing from the folder in which it is started: there may be anything, written by anybody.
    of_python = {"PYTHONUTF8": "1", "PYTHONSAFEPATH": "1"}
    return kept | server_environment(PATH=os.environ.get("PATH", os.defpath), **of_python) | more


def server_environment(**more: str) -> dict[str, str]:
    """Return the environment of a server, which has nothing of this process's own, and ``more``."""
    found = home()
    return {"LC_ALL": LOCALE, "PATH": os.defpath, **({} if found is None else {"HOME": str(found)}), **more}
