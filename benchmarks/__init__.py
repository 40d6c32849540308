"""What `make bench` measures, each figure beside what it ran beside."""
