"""What each subcommand does, one file a command; `specwatch.cli` only turns arguments into calls of these."""
