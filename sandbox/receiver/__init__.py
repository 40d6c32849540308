"""A webhook receiver: the demo of deliveries, signatures and retries."""
