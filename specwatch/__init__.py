"""specwatch: from an SGLang crash log to a launch command that passes the check that failed."""

__version__ = "0.1.0"
