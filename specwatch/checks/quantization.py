"""Does `--quantization` contradict how the checkpoint is quantized? SGLang takes the method from the files by itself.

Mirrors srt/configs/model_config.py: ModelConfig._verify_quantization, for methods that no other one takes over.
"""

from __future__ import annotations

from specwatch.checks.subject import Answer, Check, Subject, broken, fact
from specwatch.domain import Phase

NAME = "quantization_fits_checkpoint"
_PLAIN = frozenset(
    {
        *("awq", "awq_marlin", "bitsandbytes", "blockwise_int8", "compressed-tensors", "fp8", "gptq", "gptq_marlin"),
        *("w8a8_fp8", "w8a8_int8"),
    }
)
"""Methods that mean one format of weights; the others may convert what they find."""
_TAKES = {
    "gptq": {"gptq", "gptq_marlin", "gptq_marlin_24", "marlin", "moe_wna16"},
    "awq": {"awq", "awq_marlin", "marlin", "moe_wna16"},
    "fp8": {"fp8"},
    "bitsandbytes": {"bitsandbytes"},
    "compressed-tensors": {"compressed-tensors", "compressed_tensors", "w8a8_fp8", "w8a8_int8"},
}
"""What may be asked for on a checkpoint of each method."""
_MODELOPT = ("modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed", "nvfp4_online")


def _fits(subject: Subject) -> Answer | None:
    asked = subject.launch.text_value("quantization")
    if asked is None:
        return None
    target = subject.target()
    stated = target.top.get("quantization_config") or target.top.get("compression_config")
    if not isinstance(stated, dict):
        return Answer()
    method = str(stated.get("quant_method", "")).lower()
    evidence = (
        fact(NAME, "method of the checkpoint", method, target.source),
        fact(NAME, "--quantization", asked, "launch"),
    )
    if method == asked.lower() or asked.lower() in _TAKES.get(method, ()):
        return Answer(evidence=evidence)
    if method not in _TAKES or asked.lower() not in _PLAIN:
        return Answer(unknown=f"whether {asked} can serve a checkpoint of {method or 'ModelOpt'}", evidence=evidence)
    message = (
        f"Quantization method specified in the model config ({method}) does not match the quantization method "
        f"specified in the `quantization` argument ({asked.lower()})."
    )
    return broken(
        "quantization-differs",
        "ValueError",
        message,
        *evidence,
        model=target.path,
        checkpoint=method,
        quantization=asked,
    )


def _serve(subject: Subject) -> Answer | None:
    """Mirrors ModelConfig._validate_quantize_and_serve_config: the flag is refused, with or without ModelOpt."""
    if not subject.launch.is_set("quantize_and_serve"):
        return None
    name, asked = "quantize_and_serve", subject.launch.text_value("quantization")
    if asked not in _MODELOPT:
        message = (
            f"quantize_and_serve requires ModelOpt quantization (set with --quantization {{{', '.join(_MODELOPT)}}})"
        )
        return broken("quantize-and-serve", "ValueError", message, fact(name, "--quantization", asked, "launch"))
    message = (
        "quantize_and_serve functionality is currently disabled due to compatibility issues. Please use the separate "
        "quantize-then-deploy workflow instead. Step 1: Quantize and export model. Step 2: Deploy the exported model."
    )
    return broken("quantize-and-serve", "NotImplementedError", message, fact(name, "--quantization", asked, "launch"))


SERVE = Check(
    name="quantize_and_serve",
    phase=Phase.ARGUMENTS,
    mirrors="srt/configs/model_config.py: ModelConfig._validate_quantize_and_serve_config",
    run=_serve,
)
CHECK = Check(
    name=NAME, phase=Phase.ARGUMENTS, mirrors="srt/configs/model_config.py: ModelConfig._verify_quantization", run=_fits
)
