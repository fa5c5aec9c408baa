"""A network of the user's as the operators that a pass of it calls, and how often it calls each."""
