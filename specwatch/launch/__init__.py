"""Launch commands: parse, edit without loss, and the flag table of each release."""
