"""Not SGLang: a stand-in that behaves like it at start-up (see ../sglang_standin.py)."""
