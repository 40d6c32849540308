"""The conclusions of an audit from batch headers, input ranges and the sink's ledger: pure, no I/O."""
