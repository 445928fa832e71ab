"""The context-loss score: how much of a context reached the agent that received it.

Duty: the published formula. 1 means nothing was lost, 0 that nothing arrived.
Rules: the score is the weighted mean of the shares of the parts that were sent, renormalised over
them. A part's share is what of it is found in the evidence: the receipt that the target echoes, or the
context that it sends on in the next hop.

- ``user_intent``: words of the intent that are found, each as often as it was sent.
- ``key_facts``, ``user_preferences``: values that are found at the same path. A list's order does not
  count, its values do. ``1`` and ``1.0`` are the same, ``1`` and ``"1"`` are not.
- ``task_progress``: the same, but a ``step`` that went forward is found.
- ``conversation_summary``: the mean over its segments of the sentences that are found whole, white
  space and case apart.

A part that was sent and is missing from the evidence counts 0. Without evidence there is no score.
Not here: a model as the judge (``ports.ContextJudge``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import msgspec

from a2a_handoff.core.context import HandoffContext, joined_summary, segments
from a2a_handoff.core.text import folded, sentences, words

#: What each part weighs. They add up to 1.
WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "user_intent": 0.25,
        "key_facts": 0.35,
        "task_progress": 0.15,
        "user_preferences": 0.10,
        "conversation_summary": 0.15,
    }
)

#: A path in a JSON object (``None`` for *some item of a list*) and the value there, with its type
#: beside it, because ``True == 1`` in Python.
_Leaf = tuple[tuple[str | None, ...], bool, Any]

#: The longest receipt that anybody reads.
RECEIPT_BYTES_MAX = 262_144

_DECODER = msgspec.json.Decoder(float_hook=float)


def context_score(sent: HandoffContext, received: bytes) -> float | None:
    """How much of ``sent`` is found in ``received``, from 0 to 1.

    ``received`` is a receipt or a context package, as JSON. ``None`` if it is no evidence: not an
    object, or one that has none of the five parts.
    """
    evidence = _object(received)
    if not any(evidence.get(part) is not None for part in WEIGHTS):
        return None
    shares = {
        "user_intent": _text_share(sent.user_intent, evidence.get("user_intent")),
        "key_facts": _value_share(sent.key_facts, evidence.get("key_facts")),
        "task_progress": _value_share(sent.task_progress, evidence.get("task_progress"), rising="step"),
        "user_preferences": _value_share(sent.user_preferences, evidence.get("user_preferences")),
        "conversation_summary": _summary_share(
            sent.conversation_summary, evidence.get("conversation_summary")
        ),
    }
    counted = {part: share for part, share in shares.items() if share is not None}
    weight = sum(WEIGHTS[part] for part in counted)
    if not weight:
        return None
    return sum(WEIGHTS[part] * share for part, share in counted.items()) / weight


def passed_on(sent: HandoffContext, following: HandoffContext, said: bytes = b"") -> float | None:
    """How much of ``sent`` is found in the context of the next hop, which its receiver wrote.

    Segments are joined by the broker, so none of them can be lost. ``said`` is what the receiver wrote of
    the context, if the broker filled in the rest: with none of the five parts it is no evidence.
    """
    if said and context_score(sent, said) is None:
        return None
    evidence = {
        "user_intent": following.user_intent,
        "key_facts": msgspec.Raw(following.key_facts),
        "task_progress": msgspec.Raw(following.task_progress),
        "user_preferences": msgspec.Raw(following.user_preferences),
        "conversation_summary": joined_summary(sent.conversation_summary, following.conversation_summary),
    }
    return context_score(sent, msgspec.json.encode(evidence))


def _text_share(sent: str, found: object) -> float | None:
    if not sent.strip():
        return None
    if not isinstance(found, str):
        return 0.0
    wanted = Counter(words(sent))
    if not wanted:
        return float(folded(sent) == folded(found))
    return (wanted & Counter(words(found))).total() / wanted.total()


def _value_share(sent: bytes, found: object, *, rising: str = "") -> float | None:
    source = _object(sent)
    wanted = _leaves(source)
    if not wanted:
        return None
    if not isinstance(found, Mapping):
        return 0.0
    target = cast("Mapping[str, Any]", found)
    kept = (wanted & _leaves(target)).total()
    if _rose(source.get(rising), target.get(rising)):
        kept += 1
    return kept / wanted.total()


def _summary_share(sent: str, found: object) -> float | None:
    wanted = [each for each in (list(map(folded, sentences(text))) for text in segments(sent)) if each]
    if not wanted:
        return None
    if not isinstance(found, str):
        return 0.0
    there = {folded(each) for text in segments(found) for each in sentences(text)}
    shares = [sum(each in there for each in segment) / len(segment) for segment in wanted]
    return sum(shares) / len(shares)


def _rose(before: object, after: object) -> bool:
    numbers = [
        each for each in (before, after) if isinstance(each, int | float) and not isinstance(each, bool)
    ]
    return len(numbers) == 2 and numbers[1] > numbers[0]


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _leaves(value: Mapping[str, Any]) -> Counter[_Leaf]:
    """Every scalar and every empty container with its path, each as often as it is there."""
    found: Counter[_Leaf] = Counter()
    waiting: list[tuple[tuple[str | None, ...], Any]] = [((name,), each) for name, each in value.items()]
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, dict) and each:
            waiting += [((*path, name), item) for name, item in cast("dict[str, Any]", each).items()]
        elif isinstance(each, list) and each:
            waiting += [((*path, None), item) for item in cast("list[Any]", each)]
        elif isinstance(each, dict | list):
            found[path, True, "{}" if isinstance(each, dict) else "[]"] += 1
        else:
            found[path, isinstance(each, bool), each] += 1
    return found
