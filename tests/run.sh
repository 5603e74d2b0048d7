#!/usr/bin/env bash
# Everything that has to hold, on a fresh machine: formatting, lint, types, tests, and the wheel in an environment of
# its own. Needs Python 3.11 or newer with venv, and git. Usage: bash tests/run.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" -c 'import ensurepip, venv' 2>/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends python3-venv; }
[ -x .venv/bin/python ] || "$python" -m venv .venv
# the real parts that tests start themselves, on loopback or in boxes of their own: command, package. What is there
# already stays as it is.
missing=()
while read -r command package; do
  command -v "$command" >/dev/null || [ -x "$command" ] || missing+=("$package")
done <<'PARTS'
systemd-nspawn systemd-container
/lib/systemd/systemd-journal-remote systemd-journal-remote
dbus-daemon dbus
logrotate logrotate
dockerd docker.io
ip iproute2
kubectl kubernetes-client
prometheus prometheus
promtool prometheus
prometheus-alertmanager prometheus-alertmanager
chromium chromium
chromedriver chromium-driver
PARTS
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update -q
  apt-get install -qy --no-install-recommends "${missing[@]}"
  # a package of its own in later releases
  command -v docker >/dev/null || apt-get install -qy --no-install-recommends docker-cli
fi
.venv/bin/python -m pip install -q --disable-pip-version-check -e '.[test]'
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
# the real SGLang is a stage of its own: tests/e2e/real_sglang/run.sh
.venv/bin/python -m pytest -n auto --ignore=tests/e2e/test_apply_real_sglang.py "$@"

# against the real SGLang, where one is at hand: a command that answers cases (see tools/compare_real.py)
if [ -n "${SPECWATCH_REAL_SGLANG:-}" ]; then
  .venv/bin/python tools/compare_real.py --seed 7 --cases 100 --real "$SPECWATCH_REAL_SGLANG"
fi

# the wheel, installed where nothing of the checkout can be seen
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m build --wheel --no-isolation --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check "$work"/dist/specwatch-*.whl
cp -r examples "$work/examples"
(
  cd "$work"
  code=0
  venv/bin/specwatch diagnose examples/server.log --path-map /models=examples/models --format json >answer.json || code=$?
  [ "$code" = 1 ]
  venv/bin/python - <<'P'
import json

finding = json.load(open("answer.json"))["findings"][0]
assert finding["rule"] == "standalone-vocab-mismatch" and finding["verdict"]["status"] == "broken", finding
P
)
echo "the wheel diagnoses the example from an environment of its own"
