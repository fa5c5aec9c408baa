"""Training by back-propagation and by rules that need less memory, and grids of such trainings."""
