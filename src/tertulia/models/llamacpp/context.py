"""The weights of a GGUF file in llama.cpp, and contexts: what computes logits, and remembers keys and values.

A context has a memory of so many tokens for so many sequences, numbered from 0. Either each sequence has an equal part
of it (streams), which is fast for conversations that have nothing in common, or all share it (`unified`), so that
sequences can have their first tokens in common without a copy.
"""

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.core.errors import BotError
from tertulia.models.llamacpp.library import Batch, last_error, load_library

BATCH = 256
"""Tokens that go through the model at once."""
NO_ROOM = 1
"""What `llama_decode` returns if the memory has no room for the batch."""


class Weights:
    """A loaded GGUF file, perhaps with an adapter; freed when nobody uses it any more."""

    def __init__(self, file: Path) -> None:
        self.library = load_library()
        self.file = file
        self.adapter: int | None = None
        self.handle = self.library.llama_model_load_from_file(
            str(file).encode(), self.library.llama_model_default_params()
        )
        if not self.handle:
            raise BotError(f"llama.cpp cannot load {file}: {last_error()}", hint="Give a GGUF file of a text model.")
        self.close = weakref.finalize(self, self.library.llama_model_free, self.handle)  # frees the adapter, too
        self.vocabulary = int(self.library.llama_vocab_n_tokens(self.library.llama_model_get_vocab(self.handle)))
        self.window = int(self.library.llama_model_n_ctx_train(self.handle))

    def metadata(self, key: str) -> str:
        """What the file says about itself; empty if it does not."""
        content = ctypes.create_string_buffer(1024)
        self.library.llama_model_meta_val_str(self.handle, key.encode(), content, len(content))
        return content.value.decode()

    def attach(self, adapter: Path) -> None:
        """Use a LoRA adapter (GGUF) in all contexts that are made from now on."""
        self.adapter = self.library.llama_adapter_lora_init(self.handle, str(adapter).encode())
        if not self.adapter:
            raise BotError(f"llama.cpp cannot load the adapter {adapter}: {last_error()}", hint="Use engine=torch.")


class Context:
    """Computes logits and keeps the keys and values of sequences. Not thread-safe."""

    def __init__(self, weights: Weights, *, tokens: int, sequences: int, unified: bool, threads: int) -> None:
        self.library, self.weights = weights.library, weights
        params = self.library.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = tokens, sequences, unified
        params.n_batch = params.n_ubatch = BATCH
        params.n_outputs_max_per_seq = 0  # as many as there are tokens
        self.handle = self.library.llama_init_from_model(weights.handle, params)
        if not self.handle:
            raise BotError(f"llama.cpp has no memory for {tokens} tokens: {last_error()}", hint="Use engine=torch.")
        self.close = weakref.finalize(self, self.library.llama_free, self.handle)
        self.library.llama_set_n_threads(self.handle, threads, threads)
        self.memory = self.library.llama_get_memory(self.handle)
        self.decoded = 0
        """Tokens that went through the model so far."""
        if weights.adapter is not None:
            adapters, scales = (ctypes.c_void_p * 1)(weights.adapter), (ctypes.c_float * 1)(1.0)
            if self.library.llama_set_adapters_lora(self.handle, adapters, 1, scales) != 0:
                raise BotError(f"llama.cpp cannot use the adapter: {last_error()}", hint="Use engine=torch.")

    def decode(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[int],
        outputs: Sequence[bool] | NDArray[np.bool_],
    ) -> NDArray[np.float32]:
        """Append tokens to sequences; the logits after those whose output is wanted, in this order: (n, vocabulary)."""
        ids, position_ids, numbers = (np.asarray(part, dtype=np.int32) for part in (tokens, positions, sequences))
        wanted = np.asarray(outputs, dtype=np.int8)
        logits = np.empty((int(wanted.sum()), self.weights.vocabulary), dtype=np.float32)
        filled = 0
        for first in range(0, len(wanted), BATCH):
            part = slice(first, first + BATCH)
            count = int(wanted[part].sum())
            self._decode(ids[part], position_ids[part], numbers[part], wanted[part])
            if count:
                pointer = self.library.llama_get_logits(self.handle)
                logits[filled : filled + count] = np.ctypeslib.as_array(pointer, logits[:count].shape)
                filled += count
        return logits

    def _decode(
        self, tokens: NDArray[np.int32], positions: NDArray[np.int32], sequences: NDArray[np.int32], wanted: Any
    ) -> None:
        count = len(tokens)
        one_each = np.ones(count, dtype=np.int32)
        tokens, positions, sequences, wanted = map(np.ascontiguousarray, (tokens, positions, sequences, wanted))
        pointers = sequences.ctypes.data + sequences.itemsize * np.arange(count, dtype=np.uintp)
        batch = Batch(
            count,
            tokens.ctypes.data,
            None,
            positions.ctypes.data,
            one_each.ctypes.data,
            pointers.ctypes.data,
            wanted.ctypes.data,
        )
        code = self.library.llama_decode(self.handle, batch)
        self.decoded += count
        if code == NO_ROOM:
            raise BotError(
                "The replies that are being generated need more memory than the engine llama.cpp has.",
                hint="Ask for fewer samples, beams or tokens, or use engine=torch.",
            )
        if code != 0:
            raise BotError(f"llama.cpp failed (code {code}): {last_error()}", hint="Use engine=torch.")

    def truncate(self, sequence: int, length: int) -> None:
        """Forget everything after the first `length` tokens of a sequence."""
        self.library.llama_memory_seq_rm(self.memory, sequence, length, -1)

    def share(self, source: int, target: int, length: int) -> None:
        """Let `target`, which is empty, begin with the first tokens of `source`; only in a unified memory."""
        self.library.llama_memory_seq_cp(self.memory, source, target, 0, length)

    def save(self, sequence: int) -> NDArray[np.uint8]:
        """The keys and values of a sequence, for `restore` in any context of the same weights."""
        size = self.library.llama_state_seq_get_size(self.handle, sequence)
        content = np.empty(size, dtype=np.uint8)
        written = self.library.llama_state_seq_get_data(self.handle, content.ctypes.data, size, sequence)
        return content[:written]

    def restore(self, sequence: int, content: NDArray[np.uint8]) -> None:
        """Give a sequence, which is empty, what was saved."""
        if not self.library.llama_state_seq_set_data(self.handle, content.ctypes.data, len(content), sequence):
            raise BotError(
                "The engine llama.cpp has no room for another conversation.",
                hint="Ask for fewer samples, beams or tokens, or use engine=torch.",
            )
