"""Run one experiment file: validate it (`spec`), expand it into runs (`sweep`), run them and record what happened.

`units` parses rates, times and sizes at the edge; `emulation` is the backend that shapes a real network on this machine, `cluster` the one
that takes real machines as they are.
"""
