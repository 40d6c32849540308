"""What collectors see that need neither a broker nor a database."""
