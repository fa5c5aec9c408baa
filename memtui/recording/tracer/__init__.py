"""What runs inside a traced training: exact allocations of single steps."""
