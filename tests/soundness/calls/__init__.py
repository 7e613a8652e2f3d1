"""Calls that have a way of their own: modules, copies, signatures, operators, random numbers, signals."""
