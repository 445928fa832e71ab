"""Signed cards: what registration makes of them, and the broker's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import create_signature_verifier

from a2a_handoff.app import Application, ConfigurationError
from a2a_handoff.config import Settings
from tests.cases.test_discovery import WELL_KNOWN, Site
from tests.support.agents import card
from tests.support.running import broker, running
from tests.support.signing import Signer, key_file, key_set, keys_of, pem_file


def test_what_a_signature_is_worth_stands_with_the_agent(tmp_path: Path) -> None:
    signer = Signer()
    signed = signer.signed(card("http://127.0.0.1:9/", name="Signed"))
    with broker(tmp_path, card_keys=key_file(tmp_path, signer)) as b:
        assert b.register("good", card=signed)["card_signature"] == {
            "status": "verified", "key_id": "k1", "key_from": "card_keys", "detail": "",
        }  # fmt: skip
        assert b.http.get("/api/agents/good").json()["card_signature"]["status"] == "verified"
        assert b.register("plain", card=card("http://127.0.0.1:8/"))["card_signature"]["status"] == "unsigned"
        strange = Signer("k9").signed(card("http://127.0.0.1:7/"))
        assert b.register("strange", card=strange)["card_signature"]["detail"] == (
            "signatures[0]: its key 'k9' is not one that this broker knows"
        )
        assert b.register("pull")["card_signature"]["status"] == "unchecked"
        served = b.http.get("/agents/good" + WELL_KNOWN)
        assert served.json() == signed


def test_a_changed_card_is_refused_with_the_place(tmp_path: Path) -> None:
    signer = Signer()
    with broker(tmp_path, card_keys=key_file(tmp_path, signer)) as b:
        changed = signer.signed(card("http://127.0.0.1:9/")) | {"version": "9"}
        answer = b.http.post("/api/agents", json={"agent_id": "a", "card": changed})
        assert answer.status_code == 422
        assert "card.signatures[0]" in answer.text
        assert b.http.get("/api/agents/a").status_code == 404


def test_only_verified_cards_are_taken_where_that_is_required(tmp_path: Path) -> None:
    signer = Signer()
    with broker(tmp_path, card_signatures="require", card_keys=key_file(tmp_path, signer)) as b:
        for bad in (card("http://127.0.0.1:9/"), Signer("k9").signed(card("http://127.0.0.1:9/"))):
            answer = b.http.post("/api/agents", json={"agent_id": "a", "card": bad})
            assert answer.status_code == 422, answer.text
            assert "card.signatures" in answer.text
        assert b.register("a", card=signer.signed(card("http://127.0.0.1:9/")))["agent_id"] == "a"
        assert b.register("pull")["agent_id"] == "pull"


def test_an_agent_that_was_taken_unsigned_gets_no_work_once_signatures_are_required(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        b.register("a", card=card("http://127.0.0.1:9/", skills=("bill",)))
    with broker(tmp_path, card_signatures="require", card_keys=key_file(tmp_path, Signer())) as b:
        asked = {"source_agent": "x", "requirements": {"skill": "bill"}}
        answer = b.http.post("/api/resolve", json=asked).json()
        assert answer["candidates"] == []
        assert "without a verified signature" in json.dumps(answer["passed_over"])
    with broker(tmp_path) as b:
        answer = b.http.post("/api/resolve", json=asked).json()
        assert [each["agent_id"] for each in answer["candidates"]] == ["a"]


def test_a_card_is_verified_when_it_is_fetched_by_a_key_set_on_the_list(tmp_path: Path) -> None:
    signer, site = Signer(), Site()
    with running(site) as url:
        site.pages["/keys"] = key_set(signer)
        site.pages[WELL_KNOWN] = signer.signed(card(url + "/"), jku=url + "/keys")
        with broker(tmp_path, card_key_urls=url + "/keys") as b:
            found = b.register("a", card_url=url)["card_signature"]
            assert (found["status"], found["key_from"]) == ("verified", url + "/keys")
        site.asked.clear()
        with broker(tmp_path, card_key_urls="https://other.example/keys") as b:
            assert b.register("b", card_url=url)["card_signature"]["status"] == "unverified"
            assert "/keys" not in site.asked


def test_a_verified_card_is_not_replaced_by_one_that_is_not(tmp_path: Path) -> None:
    signer, site = Signer(), Site()
    with running(site) as url:
        first = signer.signed(card(url + "/", skills=("bill",)))
        site.pages[WELL_KNOWN] = first
        with broker(tmp_path, card_keys=key_file(tmp_path, signer)) as b:
            b.register("a", card_url=url)
            for worse in (
                card(url + "/", skills=("evil",)),
                Signer("k9").signed(card(url + "/", skills=("evil",))),
                first | {"skills": []},
            ):
                site.pages[WELL_KNOWN] = worse
                assert b.loop.run(b.app.registry.cards.refresh_all()) == 0
                shown = b.http.get("/api/agents/a").json()
                assert [skill["id"] for skill in shown["skills"]] == ["bill"]
                assert shown["card_notice"].startswith("its card has changed and is not taken")
                assert shown["card_signature"]["status"] == "verified"
            site.pages[WELL_KNOWN] = signer.signed(card(url + "/", skills=("better",)))
            assert b.loop.run(b.app.registry.cards.refresh_all()) == 1
            shown = b.http.get("/api/agents/a").json()
            assert ([skill["id"] for skill in shown["skills"]], shown["card_notice"]) == (["better"], "")


def test_a_verified_card_whose_key_was_withdrawn_stays_in_force_and_says_so(tmp_path: Path) -> None:
    signer, other, site = Signer(), Signer("k2"), Site()
    with running(site) as url:
        site.pages[WELL_KNOWN] = signer.signed(card(url + "/", skills=("bill",)))
        with broker(tmp_path, card_keys=key_file(tmp_path, signer)) as b:
            b.register("a", card_url=url)
        with broker(tmp_path, card_keys=key_file(tmp_path, other)) as b:
            b.loop.run(b.app.registry.cards.refresh_all())
            shown = b.http.get("/api/agents/a").json()
            assert shown["card_notice"] == (
                "its card would not be taken any more, and stays in force: card.signatures its signature is "
                "unverified, and that of the card before was verified"
            )
            site.pages[WELL_KNOWN] = other.signed(card(url + "/", skills=("bill",)))
            b.loop.run(b.app.registry.cards.refresh_all())
            shown = b.http.get("/api/agents/a").json()
            assert (shown["card_notice"], shown["card_signature"]["key_id"]) == ("", "k2")


def test_what_a_signature_does_not_cover_is_not_read(tmp_path: Path) -> None:
    signer = Signer()
    signed = signer.signed_by_the_sdk(card("http://127.0.0.1:9/", skills=("bill",)))
    signed["capabilities"]["canDeploy"] = True
    signed["capabilities"]["domains"] = ["secrets"]
    with broker(tmp_path, card_keys=key_file(tmp_path, signer)) as b:
        shown = b.register("a", card=signed)
        assert shown["card_signature"]["status"] == "verified"
        assert "canDeploy" not in shown["capabilities"]
        assert shown["capabilities"]["domains"] == []
        assert [skill["id"] for skill in shown["skills"]] == ["bill"]
    with broker(tmp_path, card_signatures="ignore") as b:
        assert b.register("b", card=signed)["capabilities"]["canDeploy"] is True


def test_every_card_can_be_asked_for_with_its_etag(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        b.register("a", card=card("http://127.0.0.1:9/"))
        b.register("pull")
        for path in (
            WELL_KNOWN,
            "/.well-known/agent.json",
            "/agents/a" + WELL_KNOWN,
            "/agents/a/agent-card.json",
            "/agents/pull" + WELL_KNOWN,
            "/api/agents/a/card",
        ):
            answer = b.http.get(path)
            assert answer.status_code == 200, path
            assert answer.headers["cache-control"] == "max-age=60"
            for known in (answer.headers["etag"], f'"other", W/{answer.headers["etag"]}', "*"):
                again = b.http.get(path, headers={"If-None-Match": known})
                assert (again.status_code, again.content) == (304, b"")
                assert again.headers["etag"] == answer.headers["etag"]
            assert b.http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


# --- the broker's own ----------------------------------------------------------------------------


def verify(document: Any, keys: Any) -> None:
    """The SDK's own verifier. Raises if the card is not signed by one of the keys."""
    known = keys_of(keys)
    verifier = create_signature_verifier(lambda kid, jku: known[kid or ""], ["ES256"])
    verifier(parse_agent_card(json.loads(json.dumps(document))))


def test_the_brokers_cards_are_signed_and_the_sdk_verifies_them(tmp_path: Path) -> None:
    with broker(tmp_path, card_signing_key=pem_file(tmp_path), card_signing_kid="b1") as b:
        b.register("a", card=card("http://127.0.0.1:9/", skills=("bill",)))
        keys = b.http.get("/.well-known/jwks.json")
        assert keys.headers["content-type"] == "application/jwk-set+json"
        assert [key["kid"] for key in keys.json()["keys"]] == ["b1"]
        assert "d" not in keys.json()["keys"][0]
        for path in (WELL_KNOWN, "/.well-known/agent.json", "/agents/a/agent-card.json"):
            answer = b.http.get(path)
            verify(answer.json(), keys.json())
            again = b.http.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304
            assert "max-age" in answer.headers["cache-control"]
        again = b.http.get("/.well-known/jwks.json", headers={"If-None-Match": keys.headers["etag"]})
        assert again.status_code == 304
        with pytest.raises(Exception, match="No valid signature"):
            verify(answer.json() | {"name": "evil"}, keys.json())


def test_another_broker_verifies_them_whole(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with broker(tmp_path, card_signing_key=pem_file(tmp_path)) as b:
        keys = tmp_path / "theirs.json"
        keys.write_text(b.http.get("/.well-known/jwks.json").text)
        signed = b.http.get(WELL_KNOWN).json()
        with broker(tmp_path / "other", card_signatures="require", card_keys=keys) as other:
            assert other.register("b", card=signed)["card_signature"]["status"] == "verified"
            changed = signed | {"url": "http://evil.example/"}
            agent = other.register("c", card=changed)
            assert all("evil" not in each["url"] for each in agent["interfaces"])


def test_without_a_key_there_is_no_signature_and_no_key_set(tmp_path: Path) -> None:
    with broker(tmp_path) as b:
        assert "signatures" not in b.http.get(WELL_KNOWN).json()
        assert b.http.get("/.well-known/jwks.json").status_code == 404


def test_keys_that_cannot_be_used_are_told_at_the_start(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'x.db'}"
    bad = tmp_path / "bad.pem"
    bad.write_text("no key")
    with pytest.raises(ConfigurationError, match=r"card_signing_key: .*bad\.pem is neither a JWK nor"):
        Application(Settings(store=store, cards=tmp_path, card_signing_key=bad))
    with pytest.raises(ConfigurationError, match="card_signatures=require needs keys"):
        Application(Settings(store=store, cards=tmp_path, card_signatures="require"))


def test_a_card_that_changes_and_one_that_is_not_taken_are_told_to_those_who_follow_the_agents(
    tmp_path: Path,
) -> None:
    site = Site()
    with running(site) as url, broker(tmp_path, card_refresh=1.0) as b:
        site.pages[WELL_KNOWN] = card(url + "/", skills=("bill",))
        b.register("a", card_url=url)
        with b.http.stream("GET", "/api/events/agents") as answer:
            told = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {"))
            site.pages[WELL_KNOWN] = card(url + "/", skills=("refund",))
            changed = next(each for each in told if each.get("type") == "a2a-handoff.agent_updated")
            assert [skill["id"] for skill in changed["data"]["skills"]] == ["refund"]
            site.pages[WELL_KNOWN] = card(url + "/") | {"name": 7}
            refused = next(each for each in told if each.get("type") == "a2a-handoff.agent_updated")
            assert [skill["id"] for skill in refused["data"]["skills"]] == ["refund"]
            assert "card.name must be text" in refused["data"]["card_notice"]
        found = b.http.post("/api/resolve", json={"source_agent": "x", "requirements": {"skill": "refund"}})
        assert [each["agent_id"] for each in found.json()["candidates"]] == ["a"]
