"""Sends what receivers are owed, in a thread of its own."""
