"""Text as the context rules see it: names, sentences, words, where to cut.

Duty: small pure functions over ``str``, none slower than linear in its length: the text is a
stranger's.
Not here: counting tokens (a port), what is done with the answers (``budget``, ``score``).
"""

from __future__ import annotations

import re
import unicodedata

#: Longest name of an agent, a chain or a skill, in code points.
NAME_CHARS_MAX = 200

# Control characters, line and paragraph separators, bidirectional overrides, the byte order mark and
# lone surrogates: each of them makes a log line or a header say something else than it seems to say.
_FORBIDDEN_IN_NAMES = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

# What prose may have of them.
_LAYOUT = dict.fromkeys(map(ord, "\t\n\r\u2028\u2029\u0085"))

# White space and characters that show nothing: a text of these alone is blank.
_INVISIBLE = "\u00ad\u115f\u1160\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2800\u3164\ufeff"

#: What can end a sentence; a text with few of these has few sentences.
SENTENCE_MARKS = ".!?\u2026\u3002\uff01\uff1f\u061f\u0964\n"

# Those that do so whatever follows.
_ALWAYS = frozenset("\u3002\uff01\uff1f\u061f\u0964\n")

# A run of marks and the quotes and brackets that close behind it. Possessive, so that a run is looked at
# once: linear even for 64 KiB of dots.
_MARKS = re.compile(f"[{SENTENCE_MARKS}]++[\"'\u00bb\u201d\u2019)\\]\u300d\u300f]*+")

# Scripts that are written without spaces count by the character.
_SPACELESS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(f"[{_SPACELESS}]|[^\\W{_SPACELESS}]+")


def name_fault(text: str, *, chars_max: int = NAME_CHARS_MAX) -> str:
    """Why ``text`` cannot be the name of something, such as a chain or an agent; empty if it can.

    Any script and any punctuation is fine; what would break a line is not.
    """
    if len(text) > chars_max:
        return f"is longer than {chars_max} characters"
    if not text.isprintable() and _FORBIDDEN_IN_NAMES.search(text):
        return "contains a control character"
    if text != text.strip():
        return "begins or ends with white space"
    return ""


def prose_fault(text: str) -> str:
    """Why ``text`` cannot be shown to people as it is; empty if it can. Lines and tabs are fine."""
    if text.isprintable():
        return ""
    found = _FORBIDDEN_IN_NAMES.search(text.translate(_LAYOUT))
    if found is None:
        return ""
    kind = "a control character" if found[0] < "\u2000" else "a character that hides or reorders what follows"
    return f"contains {kind}, U+{ord(found[0]):04X}"


def is_blank(text: str) -> bool:
    """Whether a reader would see nothing."""
    return not text.strip() or not text.strip().strip(_INVISIBLE).strip()


def sentence_ends(text: str) -> list[int]:
    """Where each sentence ends: offsets into ``text``, the last one its length if it is not blank.

    A full stop ends a sentence before white space, a line break always, the marks of scripts without
    spaces always. What has no letter (``1.``) belongs to what follows.
    """
    ends: list[int] = []
    seen, lettered = 0, False
    for match in _MARKS.finditer(text):
        end = match.end()
        lettered = lettered or any(map(str.isalpha, text[seen:end]))
        seen = end
        stops = end == len(text) or text[end].isspace() or not _ALWAYS.isdisjoint(match.group())
        if lettered and stops:
            ends.append(end)
            lettered = False
    rest = text[ends[-1] if ends else 0 :]
    if ends and rest.strip() and not any(map(str.isalpha, rest)):
        ends[-1] = len(text)
    elif rest.strip():
        ends.append(len(text))
    return ends


def sentences(text: str) -> list[str]:
    """The sentences of ``text``, without the white space around them."""
    ends = sentence_ends(text)
    return [text[start:end].strip() for start, end in zip([0, *ends], ends, strict=False)]


def words(text: str) -> list[str]:
    """The words of ``text`` without regard to case; a character each in scripts without spaces."""
    return _WORD.findall(unicodedata.normalize("NFC", text).casefold())


def folded(text: str) -> str:
    """``text`` for comparison: composed, without regard to case, white space as single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def clip(text: str, chars_max: int) -> str:
    """At most the first ``chars_max`` code points, up to a word's end if one is near."""
    if len(text) <= chars_max:
        return text
    space = max(text.rfind(" ", 0, chars_max + 1), text.rfind("\n", 0, chars_max + 1))
    return text[: space if space > chars_max // 2 else chars_max].rstrip()


def clip_bytes(text: str, bytes_max: int) -> str:
    """At most the first ``bytes_max`` bytes of UTF-8, whole code points, up to a word's end if near."""
    encoded = text.encode()
    if len(encoded) <= bytes_max:
        return text
    whole = encoded[:bytes_max].decode(errors="ignore")
    return clip(text, len(whole))
