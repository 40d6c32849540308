"""The benchmarks of `make bench`: each compares two measurements of one run."""
