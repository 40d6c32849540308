"""What manage.py doctor tries."""
