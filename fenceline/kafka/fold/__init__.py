"""The fold of the intake: records -> newest states, transitions and counters, with its input and output."""
