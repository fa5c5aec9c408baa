"""What an operator costs in time and energy."""
