"""Which sentences of A2A 1.0.1 say MUST, REQUIRED or SHALL: their addresses, and a digest of each.

``3.1.2#4`` is the fourth such sentence of section 3.1.2. Items of a list that is introduced by such a
sentence count too. Sections 1 and 2 are about the document, 6 has examples, 12 is for bindings of others.
``proto/Task#1`` is the first sentence with *must*, in whatever case, in the comments on a message of ``a2a.proto``.

``python -m tests.interaction.sentences specification.md a2a.proto`` compares both with the digests here and
names the sections that differ; the exit code is 1 if some do. With ``--digests`` it prints what belongs here.
Not here: what the sentences say (``rules``, in our own words).
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

CHAPTERS = ("3", "4", "5", "7", "8", "9", "10", "11", "13", "14", "proto")

#: By section, in the order of the text.
DIGESTS: Mapping[str, str] = {
    "3.1.1": "8332c0bc",
    "3.1.2": "17e99cb6 c4659818 cac8d021 83b5da1d d404b620 e40f3255",
    "3.1.4": "4d5240e9 142b24f5 b341bc3c 13cc07ef 873efbe1 947bdec7 678505ab",
    "3.1.6": "754b65da 6d7a1706",
    "3.1.7": "d1478164 1d665ca9",
    "3.1.8": "f67535ca 138c6b26",
    "3.1.9": "f1880c11",
    "3.1.10": "192400b7 68391a8c",
    "3.1.11": "cb6b5139",
    "3.2.2": "c60fee49 73df76ec 8a8cb846",
    "3.2.6": "180d55a7",
    "3.3.2": (
        "aea001f3 720caf05 9c46036f 62bc2d93 da4c45f5 c0a545d1 b0f7c197 503890ba 8e1d02d3 b809aaaf "
        "b05d9638 9f541008 a5c52363 c10eb4ce ab3a78db"
    ),
    "3.3.4": "bd772dc6 8060962a 9ca3e5b9 f4f2b51b 333ba76b 3c913ff9",
    "3.4.1": "3ab74a3c 53fba6b8",
    "3.4.2": "540eb723 fca7edf6 0d5eb0fe 4a0f0951",
    "3.4.3": "d6b236bd 6098c8a6",
    "3.5.2": "21084dbd ac2bef87 0ac2ffba 2c24a37d 55eb03cd",
    "3.6": "1e9d7ea8",
    "3.6.1": "cfb998c5",
    "3.6.2": "04fec6e2 a8063ab8 6d0c854e",
    "3.6.3": "7b9cce12",
    "3.7": "13099748 07576443",
    "4": "45bf212b",
    "4.3.3": "737c4ee3 fca248e4 33ed4c91 4c3136c1",
    "4.6.3": "d4db6aa4 e84496d2 99a3d91f",
    "5.1": "ed058839 0f201e4b 3e8cfd39 9f7360a6 bdb77655",
    "5.2": "b9fb1925",
    "5.4": "611c3599 ff0a2ffa",
    "5.5": "0dfd65e6 3b5d602c",
    "5.6.1": "9f776666 d48ea4b3 da53dc4c",
    "5.7": "dbdfcd08 69092892 c3aa900c",
    "5.8": "a48431e5",
    "7.1": "dcb03c62",
    "7.4": "98dfdacf",
    "7.6.1": "c20455b7 c3c4b721 799713ef deec7a0f",
    "8.1": "de0d4d11",
    "8.3": "dab20f19",
    "8.3.1": "11bcd63d",
    "8.3.2": "65940dfb be97da88 4ce18191 1cda8e14 64215598",
    "8.4.1": (
        "89f6816a 72128ef6 767db2d6 c42a762b 05d81ee9 50beedbf c6ae1e94 ee2a1edf 32faedcf 0cb6bd73 "
        "11f8b225 99803955 17494b93"
    ),
    "8.4.2": "bf9682a2 1a772f3b 9cb76562 c5f49506",
    "8.4.3": "4eddf159 79d70d36 a9d9712e c3bcc55e 60f144d2 f1ef6a80 1c32328e 6e6ce3fe",
    "9.2": "ef864e11 30e48ed7",
    "9.3": "31dcf604",
    "9.5": "5c88d844",
    "10.2": "0be33a30 699553d0 28ae3342",
    "10.6": "696d7151 c859d887 cb0b0673 c25df3ed",
    "11.2": "d9049193 30e48ed7",
    "11.5": "afc8fbde f235b655 9574021a af13ab9f",
    "11.6": "c126c3b2 748fc179 ba428647 8085837a cb0b0673",
    "13.1": "27a2ed00 3816817d 611f15cf 85091fbd 82da921f d8ad17c4 9a77997a c374e98b",
    "13.2": "ce71f581 defd663e fca248e4",
    "13.3": "9d1c251e 32ae69e3 cce5c30d ef18e075 710a2faa",
    "13.4": "c8353c98 c83686e0 0f8b56b2 b587b01d 68504ad0 9d8d8aa6 701a832d",
    "14.1.1": "9aeadebb 5df4037b 49067220 989a4c57 3ac9a09e e749cb68",
    "14.2.1": "906f192a",
    "14.3": "5a17893d 3fc6f6f2",
    "proto/SendMessageConfiguration": "b358c011 b3a748ac",
    "proto/Message": "21bd2ede",
    "proto/Artifact": "ad5cb265 9ed2df84",
    "proto/AgentInterface": "1035996b 34898bf4",
    "proto/AgentExtension": "78d4f2e0",
    "proto/TaskPushNotificationConfig": "815a1526",
    "proto/ImplicitOAuthFlow": "e60ce38d e60ce38d",
    "proto/PasswordOAuthFlow": "e60ce38d e60ce38d",
    "proto/SendMessageRequest": "815a1526",
    "proto/GetTaskRequest": "815a1526 b358c011",
    "proto/ListTasksRequest": "815a1526",
    "proto/CancelTaskRequest": "815a1526",
    "proto/GetTaskPushNotificationConfigRequest": "815a1526",
    "proto/DeleteTaskPushNotificationConfigRequest": "815a1526",
    "proto/SubscribeToTaskRequest": "815a1526",
    "proto/ListTaskPushNotificationConfigsRequest": "815a1526",
    "proto/GetExtendedAgentCardRequest": "815a1526",
}

_HEADING = re.compile(r"#{2,4} (\d+(?:\.\d+)*)\.? ")
_MESSAGE = re.compile(r"(?:message|service|enum) (\w+)")
_WORD = re.compile(r"\b(MUST|REQUIRED|SHALL)\b")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def addresses() -> list[str]:
    """Every sentence, in the order of the text."""
    return [f"{section}#{n}" for section, them in DIGESTS.items() for n in range(1, len(them.split()) + 1)]


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """The sentences of a text in Markdown that demand something, each with its section."""
    section, fenced, listing = "", False, False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or not line.strip():
            continue
        elif line.startswith("#"):
            heading = _HEADING.match(line)
            section, listing = heading[1] if heading else "", False
        elif section.partition(".")[0] in CHAPTERS:
            item = _ITEM.match(line)
            body = _END.split(_plain(line[item.end() :] if item else line))
            demanded = [
                bool(_WORD.search(one)) or (n == 0 and bool(item) and listing) for n, one in enumerate(body)
            ]
            yield from ((section, one) for one, counts in zip(body, demanded, strict=True) if counts)
            if not item:
                listing = demanded[-1] and body[-1].endswith(":")


def comments(text: str) -> Iterator[tuple[str, str]]:
    """The sentences in the comments of a proto that demand something, each with the message it is about."""
    about: list[str] = []
    inside = ""
    for line in (*text.splitlines(), ""):
        words = line.strip()
        if words.startswith("//"):
            about.append(words.removeprefix("//").strip())
            continue
        opened = _MESSAGE.match(line)
        inside = opened[1] if opened else inside
        found = [
            one for one in _END.split(_plain(" ".join(about))) if re.search(r"\bmust\b", one, re.IGNORECASE)
        ]
        yield from ((f"proto/{inside}", one) for one in found)
        about = []


def _plain(text: str) -> str:
    """Without the marks of Markdown, which may change without a change of meaning."""
    return " ".join(_LINK.sub(r"\1", text).replace("*", "").replace("`", "").split())


def digests(path: Path) -> dict[str, str]:
    """The digests of a specification or of its proto, as they stand here."""
    found: dict[str, list[str]] = {}
    text = path.read_text(encoding="utf-8")
    for section, sentence in comments(text) if path.suffix == ".proto" else sentences(text):
        found.setdefault(section, []).append(hashlib.sha256(sentence.encode()).hexdigest()[:8])
    return {section: " ".join(them) for section, them in found.items()}


def main(paths: list[str], *, show: bool) -> int:
    """Compare, or print what belongs here."""
    found = {section: them for path in paths for section, them in digests(Path(path)).items()}
    if show:
        sys.stdout.writelines(f'    "{section}": "{them}",\n' for section, them in found.items())
        return 0
    differ = sorted(
        section for section in found.keys() | DIGESTS if found.get(section) != DIGESTS.get(section)
    )
    sys.stdout.writelines(f"section {section} differs\n" for section in differ)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main([one for one in sys.argv[1:] if one != "--digests"], show="--digests" in sys.argv))
