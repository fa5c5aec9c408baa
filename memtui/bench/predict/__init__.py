"""What a configuration that nobody measured would cost, and how far that is to be trusted."""
