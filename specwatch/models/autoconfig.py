"""Which configuration class a model gets, and when its own code would be asked.

Mirrors transformers 5.19 `models/auto/configuration_auto.py: AutoConfig.from_pretrained` and
`dynamic_module_utils.py: resolve_trust_remote_code`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from specwatch.errors import ModelError
from specwatch.models import library
from specwatch.models.library import refuse


def class_of(data: Mapping[str, Any], path: str, source: str, local: bool, trust: bool) -> tuple[str, bool]:
    """transformers' AutoConfig: the model type whose class is taken, and whether remote code is."""
    auto_map = data.get("auto_map")
    model_type = data.get("model_type")
    if "model_type" in data and not isinstance(model_type, str | int | float | None):
        raise ModelError(f"{source}: model_type is {model_type!r}; what the library makes of that is not known here")
    known = isinstance(model_type, str) and library.known(model_type)
    if isinstance(auto_map, dict | list | str) and "AutoConfig" in auto_map:
        reference = auto_map["AutoConfig"] if isinstance(auto_map, dict) else ""
        if not known and not trust:
            _needs_code(str(reference), path, local)
        own = known and library.table()["classes"].get(str(model_type), {}).get("own", False)
        if trust and not own:
            return str(model_type), True
    if "model_type" not in data:
        refuse("ValueError", f"Unrecognized model in {path}. Should have a `model_type` key in its config.json.")
    if model_type == "mistral" and "layer_types" in data:
        return "ministral", False
    if not known:
        refuse("ValueError", _UNKNOWN_TYPE.format(model_type), source)
    return str(model_type), False


_UNKNOWN_TYPE = (
    "The checkpoint you are trying to load has model type `{}` but Transformers does not recognize this architecture. "
    "This could be because of an issue with the checkpoint, or because your version of Transformers is out of date."
    "\n\nYou can update Transformers with the command `pip install --upgrade transformers`. If this does not work, "
    "and the checkpoint is very new, then there may not be a release version that supports this model yet. In this "
    "case, you can get the most up-to-date code by installing Transformers from source with the command `pip install "
    "git+https://github.com/huggingface/transformers.git`"
)


def _needs_code(reference: str, path: str, local: bool) -> None:
    """transformers' `dynamic_module_utils.py: resolve_trust_remote_code` without `--trust-remote-code`."""
    if "--" in reference:
        # The library hands the other repository's name over in the place of the message; so it is printed alone.
        message = reference.split("--")[0]
    else:
        where = os.path.abspath(path) if local else f"https://hf.co/{path}"  # noqa: PTH100 (text, no file)
        message = (
            f"The repository {path} contains custom code which must be executed to correctly load the model. "
            f"You can inspect the repository content at {where} .\n"
        )
    message += (
        f" You can inspect the repository content at https://hf.co/{path}.\n"
        "Please pass the argument `trust_remote_code=True` to allow custom code to be run."
    )
    refuse("ValueError", message)
