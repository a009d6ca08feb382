"""The SDN controller of one network: it routes, keeps count, and shows what the queues do.

`python -m controller` is the process that the switches obey. `routing` (pure) chooses paths, `conductor` decides what each switch is told,
`app` speaks OpenFlow by os-ken. `board` is where telemetry meets: `queues` reads the kernel's counters, `openflow_counters` the switches'.
`api` serves it over HTTP, `client` asks for it.
"""
