"""Three brokers for all files of this folder, and for no other: to start them takes as long as some tests.

Who stops one starts it again and waits for all; who configures one takes that back.
"""

from tests.brokers import kafka_three

__all__ = ["kafka_three"]
