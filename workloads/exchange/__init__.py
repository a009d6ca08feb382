"""How payloads travel among workers: the all-reduce of sums, the all-gather of payloads.

`plan` says in bytes and round trips what each costs on the wire; the simulator and the byte counts use the same numbers.
"""
