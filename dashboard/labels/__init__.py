"""The words and tones in which states, transitions, queries and actions are shown."""
