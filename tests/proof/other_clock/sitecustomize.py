"""Python imports this first if its folder is in PYTHONPATH: the time of day is then ``CLOCK_AHEAD_S`` ahead."""

import os
import time

_ahead_ns = int(os.environ["CLOCK_AHEAD_S"]) * 1_000_000_000
_time_ns = time.time_ns
time.time_ns = lambda: _time_ns() + _ahead_ns
time.time = lambda: time.time_ns() / 1_000_000_000
