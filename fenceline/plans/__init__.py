"""What an operator may do to what is stuck, decided before anything is done: facts in, a `Plan` out. Pure."""
