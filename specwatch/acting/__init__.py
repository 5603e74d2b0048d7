"""The parts of an action, one file a step: `specwatch.act` puts them together."""
