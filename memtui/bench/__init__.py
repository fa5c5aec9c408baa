"""Measurement of the time and energy of an operator."""
