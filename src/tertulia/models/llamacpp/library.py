"""The C interface of llama.cpp (llama.h), from the shared library inside the package xllamacpp (MIT).

The package's own door is llama.cpp's HTTP server as an object. It takes over SIGINT, opens a port, draws with its own
random numbers and penalises the prompt's tokens. Our bots promise other things, and all of them follow from logits. So
we call the C functions themselves: the decoder is ours, and llama.cpp computes the logits.

The functions are stable, the structs of parameters are not: fields come and go. So one version is accepted, the one
that was tested, and before anything else is called its default parameters are compared with those we know: a struct
that is laid out otherwise would give other values.
"""

import ctypes
import importlib.util
from collections import deque
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint8, c_uint32, c_void_p
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tertulia.core.errors import MissingExtra, TertuliaError

PACKAGE = "xllamacpp"
VERSION = "2026.10.11549"
INSTALL = f"pip install {PACKAGE}=={VERSION}"
_ERROR_LEVEL = 4


class ContextParams(ctypes.Structure):
    """`llama_context_params`."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("reserved", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
        ("beyond", c_uint8 * 256),  # room, should the library write more than we know; never read
    )


DEFAULTS: dict[str, float] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": -1.0,
    "yarn_beta_fast": -1.0,
    "yarn_beta_slow": -1.0,
    "defrag_thold": -1.0,
    "type_k": 1,
    "type_v": 1,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
}
"""What `llama_context_default_params` returns in the tested version; all other fields are 0."""


class ModelParams(ctypes.Structure):
    """`llama_model_params`, passed on as the library fills it in."""

    _fields_ = (("content", c_uint8 * 256),)


class Batch(ctypes.Structure):
    """`llama_batch`: tokens, their positions and sequences, and where logits are wanted."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    )


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "llama_log_set": (None, [_LOG, c_void_p]),
    "llama_backend_init": (None, []),
    "llama_model_default_params": (ModelParams, []),
    "llama_context_default_params": (ContextParams, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, ModelParams]),
    "llama_model_free": (None, [c_void_p]),
    "llama_model_n_ctx_train": (c_int32, [c_void_p]),
    "llama_model_meta_val_str": (c_int32, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_init_from_model": (c_void_p, [c_void_p, ContextParams]),
    "llama_free": (None, [c_void_p]),
    "llama_set_n_threads": (None, [c_void_p, c_int32, c_int32]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_seq_rm": (c_bool, [c_void_p, c_int32, c_int32, c_int32]),
    "llama_memory_seq_cp": (None, [c_void_p, c_int32, c_int32, c_int32, c_int32]),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_get_logits": (POINTER(c_float), [c_void_p]),
    "llama_state_seq_get_size": (c_size_t, [c_void_p, c_int32]),
    "llama_state_seq_get_data": (c_size_t, [c_void_p, c_void_p, c_size_t, c_int32]),
    "llama_state_seq_set_data": (c_size_t, [c_void_p, c_void_p, c_size_t, c_int32]),
    "llama_adapter_lora_init": (c_void_p, [c_void_p, c_char_p]),
    "llama_set_adapters_lora": (c_int32, [c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_float)]),
}
"""Result and arguments of the functions that are used. ctypes releases the interpreter's lock during each call."""

_errors: deque[str] = deque(maxlen=8)


def _log(level: int, text: bytes, _: object) -> None:
    """Keep the last errors for our own messages; a library does not print."""
    if level == _ERROR_LEVEL:
        _errors.append(text.decode(errors="replace").strip())


_log_callback = _LOG(_log)
"""Kept for as long as the library may call it."""


class UnusableLibrary(TertuliaError):  # noqa: N818
    """The package is there, but is not the one that was tested, or does not fit this machine."""


@cache
def load_library() -> Any:
    """The library with its functions declared and checked; `MissingExtra` or `UnusableLibrary` if there is none."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra("The engine llama.cpp (the package xllamacpp)", "pip install 'tertulia[fast]'")
    try:
        installed = version(PACKAGE)
    except PackageNotFoundError:
        installed = "unknown"
    if installed != VERSION:
        raise UnusableLibrary(
            f"xllamacpp {installed} is installed, and its C interface may differ from the tested one.",
            hint=f"Install the tested version ({INSTALL}), or use engine=torch.",
        )
    files = sorted(file for ending in ("so", "pyd") for file in Path(spec.origin).parent.glob(f"{PACKAGE}*.{ending}"))
    try:
        library = ctypes.CDLL(str(files[0]))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (IndexError, OSError, AttributeError) as error:
        raise UnusableLibrary(
            f"The library of xllamacpp cannot be used on this machine: {error}.", hint="Use engine=torch."
        ) from error
    library.llama_log_set(_log_callback, None)
    check_layout(library.llama_context_default_params())
    library.llama_backend_init()
    return library


def check_layout(defaults: ContextParams) -> None:
    """Reject a library whose default parameters, read with our layout, are not those of the tested version."""
    for name, _ in ContextParams._fields_[:-1]:
        if (getattr(defaults, name) or 0) != DEFAULTS.get(name, 0):
            raise UnusableLibrary(
                f"The parameters of xllamacpp are laid out in another way than in the tested build ({name}).",
                hint=f"Install it again ({INSTALL}), or use engine=torch.",
            )


def last_error() -> str:
    """The last lines that llama.cpp logged as errors, in one."""
    return " ".join(_errors)
