"""From settings to who judges the signatures of cards, and what the broker's own are signed with.

Duty: read the keys that the settings name, and say at the start what is wrong with them.
Rules: what needs the extra is loaded only if a setting asks for it.
Not here: judging (``client.card_judge``), signing (``wire.signatures``), keys (``security``).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from a2a_handoff.client.card_judge import CardJudge
from a2a_handoff.client.documents import read_document
from a2a_handoff.config import ConfigurationError, Settings
from a2a_handoff.ports import Clock, UrlPolicy
from a2a_handoff.transports.cards import Seal
from a2a_handoff.wire.signatures import CardSigner

if TYPE_CHECKING:
    from a2a_handoff.security.keyring import PublicKeys

_LIBRARIES = ("joserfc", "rfc8785")


def judge_of(settings: Settings, policy: UrlPolicy, clock: Clock) -> CardJudge | None:
    """Who judges the signatures of cards; nobody if they are ignored.

    Raises ``ConfigurationError`` if that cannot be done with what is set.
    """
    if settings.card_signatures == "ignore":
        return None
    required = settings.card_signatures == "require"
    file, urls = settings.card_keys, settings.card_key_urls.split()
    if file is None and not urls:
        if required:
            raise ConfigurationError("card_signatures=require needs keys: set card_keys or card_key_urls")
        return CardJudge(clock)
    _need_libraries("card_keys" if file else "card_key_urls")
    own = None if file is None else _keys_at(str(file), policy, clock)
    sets = {url: _keys_at(url, policy, clock) for url in urls}
    return CardJudge(clock, required=required, keys=own, key_sets=sets)


def _keys_at(place: str, policy: UrlPolicy, clock: Clock) -> PublicKeys:
    from a2a_handoff.security.keyring import PublicKeys  # noqa: PLC0415 - its library is an extra

    return PublicKeys(lambda: read_document(place, policy), monotonic=clock.monotonic, named=place)


def seal_of(settings: Settings) -> Seal | None:
    """What the broker's cards are signed with, if a key is set.

    Raises ``ConfigurationError`` if the key cannot be used.
    """
    path = settings.card_signing_key
    if path is None:
        return None
    _need_libraries("card_signing_key")
    from a2a_handoff.security.card_keys import KeyFault, load_signing_key  # noqa: PLC0415 - its library is an extra

    try:
        key = load_signing_key(path, settings.card_signing_kid)
    except KeyFault as fault:
        raise ConfigurationError(f"card_signing_key: {path} {fault}") from None
    url = settings.card_signing_jku
    signer = CardSigner(key.sign, algorithm=key.algorithm, key_id=key.key_id, key_url=url)
    return Seal(signer, key.key_set())


def _need_libraries(setting: str) -> None:
    if any(find_spec(name) is None for name in _LIBRARIES):
        raise ConfigurationError(f"{setting} needs the extra signing: pip install 'a2a-handoff[signing]'")
