"""A worker of the demonstration takes the memory of a large buffer for itself, and gives it back."""

import ctypes
import subprocess
import sys

import pytest

from batonpass.demo.worker import keep_heap_small

COUNT = """
import ctypes, sys
from batonpass.demo.worker import keep_heap_small

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype, libc.free.argtypes = Mallinfo2, ctypes.c_void_p, [ctypes.c_void_p]
if sys.argv[1] == "small":
    keep_heap_small()
libc.free(libc.malloc(1 << 20))
before = libc.mallinfo2().hblks
libc.malloc(900 << 10)
print(libc.mallinfo2().hblks - before)
"""


IS_GLIBC = hasattr(ctypes.CDLL(None), "mallinfo2")


@pytest.mark.parametrize(("heap", "of_its_own"), [("small", "1"), ("as it is", "0")])
def test_a_buffer_that_is_smaller_than_an_earlier_one_has_memory_of_its_own(heap: str, of_its_own: str) -> None:
    """By itself glibc puts it into the heap once a larger one has been freed. Another C library is left as it is."""
    if not IS_GLIBC:
        keep_heap_small()
        return
    output = subprocess.run([sys.executable, "-c", COUNT, heap], capture_output=True, text=True, check=True).stdout
    assert output.split() == [of_its_own]
