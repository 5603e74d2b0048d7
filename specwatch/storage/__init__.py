"""What is remembered: SQLite files, and the audit log beside them."""
