"""Whole commands on real programs."""
