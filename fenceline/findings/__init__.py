"""What all findings have: the names of their rules, and how severe they are."""
