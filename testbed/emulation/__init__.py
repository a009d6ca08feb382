"""Boot a `Network` for real: namespaces, Mininet, Open vSwitch, shaped queues and delay, then prove it.

`sandbox` owns what a run makes; `network` boots it; `verify` measures it; `fidelity` and `validity` judge the run.
"""
