"""One training job on real machines, started by torchrun: the same schemes, records and figures as on an emulated network.

Rank 0 leads: it reads the experiment file, gives every rank the same orders through torchrun's store, and writes the results.
Each rank's work is done in a process of its own for every run, by the same workers as in the emulation. Nothing needs root.
"""
