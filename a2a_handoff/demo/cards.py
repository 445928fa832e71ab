"""The AgentCards of the demo's agents: found, and moved to the ports that are free.

Duty: read the example cards and give a copy whose address is where the agent really listens.
Rule: a card is changed in its addresses only.
Not here: what a card means (``wire.cards``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

Card = dict[str, Any]

_FOLDER = "agent_cards"


def cards_folder() -> Path:
    """The folder of example cards: of the working directory, or beside the package.

    Raises:
        FileNotFoundError: There is none.
    """
    places = (Path.cwd(), Path(__file__).parents[2], Path(__file__).parents[1])
    for place in places:
        if (place / _FOLDER).is_dir():
            return place / _FOLDER
    raise FileNotFoundError(f"no folder {_FOLDER}: run the demo in the project's folder")


def read_card(folder: Path, name: str) -> Card:
    """The card of one agent."""
    card: Card = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return card


def port_of(card: Card) -> int:
    """The port that the card names."""
    url: str = _interfaces(card)[0]["url"]
    return urlsplit(url).port or 0


def at_port(card: Card, port: int) -> Card:
    """The same card for an agent that listens on another port."""
    moved: Card = json.loads(json.dumps(card))
    for interface in _interfaces(moved):
        url: str = interface["url"]
        parts = urlsplit(url)
        interface["url"] = urlunsplit(parts._replace(netloc=f"{parts.hostname}:{port}"))
    return moved


def _interfaces(card: Card) -> list[dict[str, Any]]:
    interfaces: list[dict[str, Any]] = card["supportedInterfaces"]
    return interfaces
