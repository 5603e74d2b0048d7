"""Model files as SGLang reads them, without loading weights, running remote code or needing a GPU."""
