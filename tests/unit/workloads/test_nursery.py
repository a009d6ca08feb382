"""What a nursery imports: of a scheme what it needs, before there are workers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.unit.workloads.preloaded import Preloaded, preloaded

TOLD = """
import sys
from workloads.nursery import Nursery
Nursery()._obey({request!r})
print("kernels" if "numba" in sys.modules else "none")
"""


@pytest.fixture(scope="module")
def python() -> Iterator[Preloaded]:
    with preloaded(["workloads.nursery"]) as process:
        yield process


@pytest.mark.parametrize(
    ("preload", "compiled"),
    [({}, "none"), ({"scheme": {"scheme": "none"}}, "none"), ({"scheme": {"scheme": "topk", "ratio": 0.1}}, "kernels")],
)
def test_kernels_are_loaded_for_schemes_that_have_some(python: Preloaded, preload: dict[str, object], compiled: str) -> None:
    request = json.dumps({"preload": preload}).encode()
    with python.forks([TOLD.format(request=request)]) as (fork,):
        assert fork.wait(timeout_s=60) == 0, fork.complained
        assert fork.said.splitlines() == ['{"event": "preloaded"}', compiled]


def test_a_scheme_that_does_not_exist_is_told(python: Preloaded) -> None:
    request = json.dumps({"preload": {"scheme": {"scheme": "tpk"}}}).encode()
    with python.forks([TOLD.format(request=request)]) as (fork,):
        assert fork.wait(timeout_s=60) == 0, fork.complained
        answer = json.loads(fork.said.splitlines()[0])
        assert answer["event"] == "error"
        assert "did you mean 'topk'?" in answer["text"]
