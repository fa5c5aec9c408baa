"""What runs a user's network to take it apart; the only package of the bench that imports torch besides the worker."""
