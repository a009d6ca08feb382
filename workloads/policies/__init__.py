"""How much to send: plain arithmetic on numbers, the same object in emulation, simulation and on a cluster.

A policy sees one Sample a step and answers with a Decision.
"""
