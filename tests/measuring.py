"""Marks of tests that measure a shared machine."""

import pytest

# Such a test judges rates, delays or times, and a busy moment of the machine can spoil any of them: a virtual machine may stand still
# for milliseconds, again and again, while its host has other work. As verification does before a run, it is tried again, a little
# later, at most four times; pytest counts every such trial ("rerun"). Tests of what is left behind, and of anything else that must
# hold at every moment, do not bear this mark.
measured = pytest.mark.flaky(reruns=4, reruns_delay=5, only_rerun="AssertionError")
