"""What a minimal and a rich context cost, and what each of them loses.

Run by hand: ``python -m tests.benchmarks.context_profiles``. A chain of five hops; each agent adds a segment of
its own and some facts. Measured is the package that the last agent receives: its tokens, its bytes, the
context-loss score of an agent that uses all it receives, and the broker's time to cut and write it. All but
the time are the same on every machine.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from msgspec.structs import replace

from a2a_handoff.core.budget import compact, fit
from a2a_handoff.core.context import HandoffContext, Package, Profile, joined_summary
from a2a_handoff.core.score import context_score
from a2a_handoff.tokens import BpeCounter
from a2a_handoff.wire.context import Stamp, write_context

HOPS = 5

AGENTS = ("triage", "billing", "payments", "fraud", "accounts")
DID = (
    "read the request and asked for the invoice number",
    "compared the invoice with the order",
    "looked for the payment in the bank statement",
    "checked the card against earlier disputes",
    "prepared the refund of the second payment",
)

#: Sentences in each segment.
CHAINS = {"short segments": 5, "long segments": 20}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    chain: str
    profile: str
    tokens: int
    bytes: int
    score: float


def segment(hop: int, sentences: int) -> str:
    """What one agent says of its part, in ``sentences`` sentences."""
    agent, did = AGENTS[hop], DID[hop]
    return " ".join(
        f"In step {number} of hop {hop + 1} the {agent} agent {did}, and noted reference {hop + 1}{number:02}."
        for number in range(1, sentences + 1)
    )


def chain(sentences: int) -> HandoffContext:
    """The context of the last hop with all that the chain ever knew."""
    summary = ""
    facts: dict[str, object] = {}
    for hop in range(HOPS):
        summary = joined_summary(summary, segment(hop, sentences))
        facts[f"{AGENTS[hop]}_reference"] = f"REF-{hop + 1:04}"
        facts[f"{AGENTS[hop]}_amount"] = 49.5 * (hop + 1)
    return HandoffContext(
        correlation_id="0198c1f0-7a54-7c3e-9d7e-1f2a3b4c5d6e",
        source_agent=AGENTS[-1],
        target_agent="archive",
        conversation_summary=summary,
        user_intent="Wants the second payment of invoice INV-1990 back",
        key_facts=json.dumps(facts).encode(),
        task_progress=b'{"step": 5, "total": 6, "completed": ["read", "compare", "look up", "check"]}',
        user_preferences=b'{"language": "fr", "tone": "formal"}',
        hop_count=HOPS,
        handoff_chain=AGENTS,
    )


def deliver(context: HandoffContext, profile: Profile, counter: BpeCounter) -> tuple[bytes, HandoffContext]:
    """The package as the target receives it."""
    fitted = fit(context, count=counter.count, profile=profile)
    stamp = Stamp(handoff_id="h", offer_id="o", attempt=1, dropped=fitted.dropped)
    return write_context(Package(context=context), stamp, fitted.context), fitted.context


def rows(counter: BpeCounter) -> list[Row]:
    """Everything that does not depend on the machine."""
    found: list[Row] = []
    for name, sentences in CHAINS.items():
        known = chain(sentences)
        for profile in Profile:
            body, context = deliver(known, profile, counter)
            found.append(row(name, profile.value, body, context, known, counter))
        bare = replace(
            known, conversation_summary="", key_facts=b"{}", task_progress=b"{}", user_preferences=b"{}"
        )
        body = write_context(Package(context=bare), Stamp(handoff_id="h", offer_id="o", attempt=1))
        found.append(row(name, "intent alone (not allowed)", body, bare, known, counter))
    return found


def row(
    name: str, profile: str, body: bytes, got: HandoffContext, known: HandoffContext, counter: BpeCounter
) -> Row:
    """One line: ``got`` is what arrived of ``known``."""
    tokens = counter.count(got.conversation_summary) + counter.count(compact(got.key_facts))
    score = context_score(known, body)
    assert score is not None
    return Row(chain=name, profile=profile, tokens=tokens, bytes=len(body), score=score)


def table(found: list[Row]) -> list[str]:
    """The rows as lines of a Markdown table."""
    return [
        "| Chain of five hops | Profile | Tokens to read | Bytes | Score |",
        "|---|---|---|---|---|",
        *(f"| {r.chain} | {r.profile} | {r.tokens:,} | {r.bytes:,} | {r.score:.2f} |" for r in found),
    ]


def microseconds(context: HandoffContext, profile: Profile, counter: BpeCounter) -> float:
    """The best mean of seven rounds, in CPU time, with counts remembered as in a running broker."""
    best = float("inf")
    for _ in range(7):
        started = time.process_time()
        for _ in range(500):
            deliver(context, profile, counter)
        best = min(best, (time.process_time() - started) / 500)
    return best * 1e6


def main() -> None:
    counter = BpeCounter()
    print("\n".join(table(rows(counter))))
    for name, sentences in CHAINS.items():
        known = chain(sentences)
        rich, minimal = (microseconds(known, profile, counter) for profile in (Profile.RICH, Profile.MINIMAL))
        print(f"{name}: rich {rich:.0f} µs, minimal {minimal:.0f} µs, ratio {rich / minimal:.1f}")
        fresh = BpeCounter()
        fresh.load()
        started = time.process_time()
        tokens = fresh.count(known.conversation_summary)
        spent = time.process_time() - started
        print(f"  counting its {tokens} tokens for the first time: {spent * 1e6:.0f} µs")


if __name__ == "__main__":
    main()
