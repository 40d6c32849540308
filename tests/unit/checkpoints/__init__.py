"""What collectors read without a broker or a database."""
