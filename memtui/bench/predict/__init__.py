"""Prediction of the cost of configurations that were not measured, with ranges."""
