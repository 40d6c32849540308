"""What a stack of `make up` is told and tells: its configuration, its address."""
