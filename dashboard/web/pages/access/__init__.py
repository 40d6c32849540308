"""Pages of users and tokens, of the sign-in, and of the audit log."""
