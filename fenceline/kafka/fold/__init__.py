"""Records -> what is worth keeping of them: the fold of the intake, and what it reads and returns."""
