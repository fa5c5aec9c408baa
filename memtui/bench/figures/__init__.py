"""Figures of measurements: costs by configuration, a network against its operators, predictions against both."""
