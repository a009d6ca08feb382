"""Which codecs there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch

from workloads.compression.codec import Codec
from workloads.compression.dense import Dense
from workloads.compression.natural import Natural
from workloads.compression.onebit import OneBit
from workloads.compression.qsgd import QSGD
from workloads.compression.randomk import RandomK
from workloads.compression.sampled import SampledTopK
from workloads.compression.terngrad import TernGrad
from workloads.compression.threelc import ThreeLC
from workloads.compression.topk import TopK

CODECS: Mapping[str, Callable[[], Codec]] = MappingProxyType(
    {
        "dense": Dense,
        "fp16": partial(Dense, torch.float16),
        "bf16": partial(Dense, torch.bfloat16),
        "topk": TopK,
        "topk-half": partial(TopK, half_below=1.0),  # values in half precision at every ratio below 1
        "topk-sampled": SampledTopK,
        "randomk": RandomK,
        "3lc": ThreeLC,
        "qsgd": QSGD,
        "terngrad": TernGrad,
        "onebit": OneBit,
        "natural": Natural,
    }
)
