"""Solvers: the cheapest placement under a limit of fast memory, and the baselines to compare it with."""
