#!/usr/bin/env bash
# The stage of the real SGLang, after tests/run.sh has made .venv: at most 15 minutes beside the setup of its
# environment, which `.ci/run` begins early, in the background.
set -euo pipefail
cd "$(dirname "$0")/../../.."
tests/e2e/real_sglang/setup.sh >/dev/null
exec timeout 900 .venv/bin/python -m pytest tests/e2e/test_apply_real_sglang.py
