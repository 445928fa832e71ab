"""What an agent says first after it took a task over: who it is there for, and what it knows already.

Duty: the receiver's introduction from the context package, and the questions that are really open.
Rules: the source is named; the intent and some facts are said back, so that the person sees they
arrived; nothing is asked that the facts answer; each question says why it is asked. Facts are a
stranger's text: shown on one line, shortened, and unable to change the direction of what is around them.
Not here: reading the package (``incoming``), sending the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from a2a_handoff.core.text import clip

#: Most facts that are said back, and the most characters of each text that is.
FACTS_SHOWN = 5
TEXT_CHARS = 160
VALUE_CHARS = 80

_LANGUAGE_KEYS = ("language", "lang", "locale", "langue")

_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"
_RIGHT_TO_LEFT = frozenset({"R", "AL", "RLE", "RLO", "RLI"})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """One language. The names in braces are filled in."""

    names: tuple[str, ...]
    taking_over: str
    taking_over_unnamed: str
    intent: str
    facts: str
    progress: str
    question: str
    colon: str
    yes: str
    no: str


ENGLISH = Phrases(
    names=("en", "english"),
    taking_over="I am taking over your request from {source}.",
    taking_over_unnamed="I am taking over your request.",
    intent="I see what you need: {intent}",
    facts="I already know: {facts}.",
    progress="Step {step} of {total} has been reached.",
    question="I need {label}, because it is not in the file yet.",
    colon=": ",
    yes="yes",
    no="no",
)

FRENCH = Phrases(
    names=("fr", "french", "francais"),
    taking_over="Je prends en charge votre demande depuis {source}.",
    taking_over_unnamed="Je prends en charge votre demande.",
    intent="Je vois votre demande : {intent}",
    facts="Je sais déjà : {facts}.",
    progress="L'étape {step} sur {total} est atteinte.",
    question="J'ai besoin de {label}, car cette information n'est pas encore dans le dossier.",
    colon=" : ",
    yes="oui",
    no="non",
)

#: Languages by the names that people give them, folded; every other one is answered in English.
PHRASES: Mapping[str, Phrases] = MappingProxyType(
    {name: phrases for phrases in (ENGLISH, FRENCH) for name in phrases.names}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An open question: the fact that is missing, and the sentence that asks for it and says why."""

    fact: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """``text`` is the whole of it, ``questions`` those that it ends with."""

    text: str
    questions: tuple[Question, ...] = ()


def introduce(
    context: Mapping[str, Any],
    *,
    needed: Mapping[str, str] | None = None,
    show: Sequence[str] | None = None,
    language: str = "",
) -> Introduction:
    """Introduce the receiver of ``context``, a context package as parsed JSON.

    ``needed`` maps the facts that the receiver must have to what a person calls them, with the
    article (``{"customer_number": "your customer number"}``). ``show`` names the facts to say back,
    in this order; by default the first five. ``language`` overrides the person's
    own (``user_preferences``). Whatever the package lacks is left out.
    """
    phrases = PHRASES.get(_folded_language(language)) or phrases_for(context.get("user_preferences"))
    facts = _mapping(context.get("key_facts"))
    source = _line(context.get("source_agent"), TEXT_CHARS)
    sentences = [
        phrases.taking_over.format(source=source) if source else phrases.taking_over_unnamed,
    ]
    if intent := _line(context.get("user_intent"), TEXT_CHARS):
        sentences.append(phrases.intent.format(intent=_ended(intent)))
    if known := list(_shown(facts, show, phrases)):
        sentences.append(phrases.facts.format(facts=" ; ".join(known)))
    if reached := _progress(_mapping(context.get("task_progress"))):
        sentences.append(phrases.progress.format(step=reached[0], total=reached[1]))
    asked = questions(needed or {}, facts, phrases=phrases)
    sentences += [question.text for question in asked]
    return Introduction(text=" ".join(sentences), questions=asked)


def questions(
    needed: Mapping[str, str], facts: Mapping[str, Any], *, phrases: Phrases = ENGLISH
) -> tuple[Question, ...]:
    """The questions whose answers are not in ``facts``, in the order of ``needed``."""
    return tuple(
        Question(
            fact=fact,
            text=phrases.question.format(label=_line(label, TEXT_CHARS) or _line(_spoken(fact), TEXT_CHARS)),
        )
        for fact, label in needed.items()
        if not is_answered(fact, facts)
    )


def is_answered(fact: str, facts: Mapping[str, Any]) -> bool:
    """Whether ``facts`` hold a value for ``fact``.

    Names are compared without case and punctuation, and a path counts as a name: ``customer_number``
    is answered by ``customerNumber`` and by ``{"customer": {"number": …}}``, also further inside.
    ``0`` and ``false`` are answers; null, blank text and empty containers are none.
    """
    wanted = _folded_name(fact)
    return bool(wanted) and any(wanted in path and not _is_empty(value) for path, value in _paths(facts, ()))


def phrases_for(preferences: object) -> Phrases:
    """The phrases of the language that ``user_preferences`` name, English if there are none."""
    wishes = {name.casefold(): value for name, value in _mapping(preferences).items()}
    for key in _LANGUAGE_KEYS:
        if (found := wishes.get(key)) and isinstance(found, str):
            return PHRASES.get(_folded_language(found), ENGLISH)
    return ENGLISH


def _folded_language(name: str) -> str:
    """``fr-FR``, ``fr_CA.UTF-8``, ``French (Canada)``, ``Français`` as ``fr``, ``french``, ``francais``."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().casefold()
    return next(iter(re.findall(r"[a-z]+", plain)), "")


def _folded_name(name: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold()))


def _paths(value: object, path: tuple[str, ...]) -> Iterator[tuple[set[str], object]]:
    """Every value inside, with each ending of its path as one folded name. Lists have no names."""
    if path:
        yield {"".join(path[start:]) for start in range(len(path))}, value
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            yield from _paths(inner, (*path, _folded_name(name)))
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            if isinstance(item, Mapping):
                yield from _paths(cast("Mapping[str, Any]", item), path)


def _is_empty(value: object) -> bool:
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, Mapping):
        return all(map(_is_empty, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, list):
        return all(map(_is_empty, cast("list[Any]", value)))
    return value is None


def _shown(facts: Mapping[str, Any], show: Sequence[str] | None, phrases: Phrases) -> Iterator[str]:
    """Facts as *name: value*, those of inner objects with the outer name before their own."""
    leaves = list(_leaves(facts, ()))
    if show is not None:
        order = [_folded_name(name) for name in show]
        leaves = [leaf for wanted in order for leaf in leaves if wanted in _names(leaf[0])]
    shown = (
        (_line(" ".join(map(_spoken, path)), VALUE_CHARS), _value(value, phrases)) for path, value in leaves
    )
    spoken = (f"{name}{phrases.colon}{value}" for name, value in shown if name and value)
    return islice(spoken, FACTS_SHOWN if show is None else None)


def _leaves(value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(cast("Mapping[str, Any]", inner), (*path, name))
        else:
            yield (*path, name), inner


def _names(path: tuple[str, ...]) -> set[str]:
    """The folded names by which ``show`` may ask for what stands at a path: its own and the outer ones'."""
    folded = list(map(_folded_name, path))
    return {"".join(folded[:end]) for end in range(1, len(folded) + 1)}


def _value(value: object, phrases: Phrases) -> str:
    """A fact on one line; empty for null, for blank text and for what is no list of plain values."""
    if isinstance(value, bool):
        return phrases.yes if value else phrases.no
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, str | int | float):
        return _line(str(value), VALUE_CHARS)
    if isinstance(value, list):
        items = [_value(item, phrases) for item in cast("list[Any]", value) if not isinstance(item, list)]
        return clip(", ".join(filter(None, items)), VALUE_CHARS)
    return ""


def _spoken(name: str) -> str:
    return _CAMEL.sub(" ", name).replace("_", " ")


def _progress(progress: Mapping[str, Any]) -> tuple[int, int] | None:
    step, total = (_whole(progress.get(name)) for name in ("step", "total"))
    return (step, total) if step is not None and total is not None and 0 < step <= total else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return None
    return int(value)


def _line(value: object, chars_max: int) -> str:
    """Text on one line, shortened, kept apart from its surroundings if it runs from right to left."""
    if not isinstance(value, str):
        return ""
    shown = "".join(
        " " if character.isspace() else character
        for character in value
        if character.isspace() or unicodedata.category(character) not in ("Cc", "Cs", "Co")
        if character not in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )
    shown = " ".join(shown.split())
    short = clip(shown, chars_max)
    short = short if short == shown else f"{short}…"
    if any(unicodedata.bidirectional(character) in _RIGHT_TO_LEFT for character in short):
        return f"{_FIRST_STRONG_ISOLATE}{short}{_POP_ISOLATE}"
    return short


def _ended(sentence: str) -> str:
    return (
        sentence
        if sentence.rstrip(_POP_ISOLATE).endswith((".", "!", "?", "…", "。", "؟"))
        else f"{sentence}."
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
