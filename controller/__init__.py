"""What the switches' queues do. For now: `queues`, which reads any queue's counters by netlink.

The SDN controller (routing, telemetry, API) moves in here.
"""
