#!/usr/bin/env bash
# setup.sh: an environment in which the real SGLang runs on a machine without a GPU; prints its folder.
# About 6 minutes and 2.9 GB the first time. It is kept in the user's cache, and used again while this file and the
# version are the same. REAL_SGLANG=DIR names one that is there already. specwatch itself never imports sglang.
set -euo pipefail
version=${SGLANG_VERSION:-0.5.23}
if [ -n "${REAL_SGLANG:-}" ]; then
  echo "$REAL_SGLANG"
  exit 0
fi
script=$(sha256sum "$0" | cut -c1-12)
python=${PYTHON:-python3}
kept=${XDG_CACHE_HOME:-$HOME/.cache}/specwatch-tests
minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
venv=$kept/sglang-$version-py$minor-$script
mkdir -p "$kept"
exec 9>"$kept/lock"
flock 9
if [ ! -f "$venv/complete" ]; then
  rm -rf "$venv"
  # others are of another script or version: 2.9 GB each
  find "$kept" -mindepth 1 -maxdepth 1 -type d -name 'sglang-*' -exec rm -rf {} +
  "$python" -m venv "$venv"
  install() { "$venv/bin/pip" --disable-pip-version-check -q --no-cache-dir install "$@" >&2; }
  install torch==2.13.0
  install transformers==5.19.0 tokenizers==0.23.2 numpy triton apache-tvm-ffi==0.1.11
  install aiohttp fastapi uvicorn uvloop orjson msgspec pyzmq psutil pybase64 pydantic requests tqdm packaging pillow \
    prometheus-client python-multipart setproctitle sentencepiece==0.2.1 tiktoken einops scipy interegular \
    partial_json_parser openai==2.8.0 openai-harmony==0.0.4 xxhash zstandard watchfiles python-dateutil regex dill \
    cloudpickle IPython blobfile==3.0.0 distro easydict gguf mistral_common 'llguidance<2,>=1.7.6' 'anthropic>=0.20.0' \
    jsonschema modelscope ninja compressed-tensors==0.18.0
  install --no-deps "sglang==$version" xgrammar==0.2.7 soundfile pandas
  "$venv/bin/python" -c 'import torch, transformers' >&2
  touch "$venv/complete"
fi
echo "$venv"
