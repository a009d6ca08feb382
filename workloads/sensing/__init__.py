"""What others know of the network, read beside training, and how all workers come to see the same of it.

tcpinfo: the kernel, of this process's TCP connections. telemetry: the controller, of the queues on this worker's path.
agreement: the round in which all workers tell each other what they saw.
"""
