"""Rounds of federated averaging by Stator and by the systems that it is compared with.

Each module has functions that are given the first model, what clients have and a number of rounds,
and tell of each round how many seconds it took, and the model after it. A peer is imported by its
own module alone.
"""
