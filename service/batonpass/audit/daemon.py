"""Spark's daemon of Python workers, as Spark has it, but for what it imports: all that they need, before it makes them.

A worker is a copy of its daemon. What the daemon has imported, none of them has to import again. Spark would have it
import PySpark from a zip, which takes several times as long as importing what is installed, and pandas along with it.
"""

from __future__ import annotations

import gc
import sys
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path


class NoPandas(MetaPathFinder):
    """Says that pandas is not there: Arrow would import all of it to see that what it is given is none of its kinds."""

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        """Find nothing; of pandas, say so.

        Raises:
            ModuleNotFoundError: for pandas.
        """
        if fullname == "pandas":
            raise ModuleNotFoundError("the audit's workers do without pandas", name=fullname)


def prefer_installed() -> None:
    """Import PySpark, and what it brings along, from where they are installed, if they are."""
    given = list(sys.path)
    sys.path[:] = [one for one in given if not (one.endswith(".zip") and Path(one).parts[-3:-1] == ("python", "lib"))]
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = given


if __name__ == "__main__":
    prefer_installed()
    sys.meta_path.insert(0, NoPandas())

    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    from batonpass.audit import spread  # noqa: F401

    # What is there by now stays: the looks for garbage, of which a worker makes one after each task, pass over it.
    gc.freeze()
    manager()
