#!/usr/bin/env python3
"""Recomputes the golden vectors of `domain` without any of its code.

Every key, derived id and chain value is the SHA-256 of one canonical JSON array that begins with a versioned tag; this
file writes those arrays down a second time, from the definitions. `--check` recomputes each vector from its `inputs` and
names those that differ. `--write` fills `input_text` and `expected` in for vectors that were just added; it refuses to change
a vector that has them, because that would break every log that exists.

In `inputs`, 64-bit numbers are decimal strings, ids and hashes have their text form, bytes are hexadecimal.
"""

import argparse
import hashlib
import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

VECTORS = Path(__file__).resolve().parent.parent / "crates/domain/tests/golden/keys.json"
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
INTEGER_MAX = 2**53 - 1


# Canonical JSON: keys in the order of their UTF-16 units, least escaping, no white space, no floating point.


def canonical(value):
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > INTEGER_MAX):
        raise ValueError(f"{value} is not an integer within 2^53 - 1")
    return json.dumps(value, ensure_ascii=False)


# Ids: 128 bits as 26 digits of five bits, most significant first.


def id_text(raw):
    number = int.from_bytes(raw, "big")
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def id_bytes(text):
    number = 0
    for digit in text.rpartition("_")[2]:
        number = number * 32 + ALPHABET.index(digit)
    return number.to_bytes(16, "big")


# What a derivation answers: the array that is hashed, if one is, and the result.


def key(*parts):
    text = canonical(list(parts))
    return text, hashlib.sha256(text.encode()).hexdigest()


def derived_id(prefix, *parts):
    text, digest = key(*parts)
    return text, prefix + id_text(bytes.fromhex(digest)[:16])


def run_key(reason, *parts):
    return key("verger.run_key.v1", reason, *parts)


def operation_id(source, *parts):
    return derived_id("op_", "verger.operation.v1", source, *parts)


def keyed_id(prefix, kind, scope, name):
    return derived_id(prefix, "verger.keyed.v1", kind, scope, name)


# Derivations that need more than a list of their inputs.


def change_unit_key(i):
    # A unit is its author's view, so its origin is always `local`; host and counter are its place, the stream is not part.
    return key("verger.change_unit.v1", "local", i["host"], i["counter"], i["payload_type"], i["payload_id"])


def logical_change_key(i):
    return key("verger.logical_change.v1", sorted({change_unit_key(unit)[1] for unit in i["units"]}))


def action_stable_id(i):
    targets = sorted(i["targets"], key=lambda target: (id_bytes(target[0]), int(target[1])))
    hashes = i["arguments_hash"], i["scope_hash"]
    return key("verger.action.v1", i["cycle"], i["tool"], *hashes, flat(targets), i["k"])


def timer_batch(i):
    # Rust orders texts by their UTF-8 bytes.
    due = sorted(i["due"], key=lambda timer: (id_bytes(timer[0]), timer[1].encode()))
    return operation_id("timers", i["domain"], flat(due))


def entry_chain(i):
    clock = {}
    for host, counter in i["clock"]:
        clock[host] = max(int(counter), clock.get(host, 0))
    fields = ",".join(i["fields"]) if isinstance(i["fields"], list) else i["fields"]
    return key(
        "verger.entry.v1",
        i["previous"],
        *(i[name] for name in ("host", "stream", "counter", "first", "last", "kind", "schema", "workspace", "id", "op", "version")),
        flat(by_host(i["edits"])),
        fields,
        flat(by_host([host, str(counter)] for host, counter in clock.items() if counter)),
        *(i[name] for name in ("actor", "operation_id", "run_key", "source_event", "cause_depth")),
        instant(int(i["at_ms"])),
        i["body_hash"],
    )


def cursor_hash(i):
    # In the order they are kept in.
    places = flat([place[name] for name in ("host", "stream", "counter", "chain")] for place in i["places"])
    return key("verger.cursor.v1", i["consumer"], i["source"], i["history"], places)


def artifact_id(i):
    # A type is a slug, so the first slash ends it.
    return keyed_id("art_", "artifact", i["workspace"], i["artifact_type"] + "/" + i["artifact_key"])


def id_of_key(prefix, run_key):
    # The key is a hash already; its first half is the id.
    return None, prefix + id_text(bytes.fromhex(run_key)[:16])


def body_hash(i):
    return None, hashlib.sha256(bytes.fromhex(i["salt"]) + i["body"].encode()).hexdigest()


def flat(pairs):
    return [text for pair in pairs for text in pair]


def by_host(pairs):
    return sorted(pairs, key=lambda pair: id_bytes(pair[0]))


def instant(ms):
    at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


DERIVATIONS = {
    # The text itself is the result.
    "canonical_json": lambda i: (None, canonical(i["value"])),
    "id_text": lambda i: (None, i["prefix"] + "_" + id_text(bytes.fromhex(i["bytes"]))),
    # Changes.
    "change_unit_key": change_unit_key,
    "logical_change_key": logical_change_key,
    # Reasons to run.
    "run_key.subscription": lambda i: run_key("subscription", i["agent"], i["subscription"], i["change"]),
    "run_key.timer": lambda i: run_key("timer", i["agent"], i["timer"], i["intended"], i["occurrence"]),
    "run_key.session": lambda i: run_key("session", i["agent"], i["session"], i["turn"]),
    "run_key.rule": lambda i: run_key("rule", i["rule"], i["triggering_event"]),
    "run_key.event": lambda i: run_key("event", i["agent"], i["event"], i["route"]),
    "run_key.manual": lambda i: run_key("manual", i["agent"], i["client_key"]),
    "run_key.recovery_catchup": lambda i: run_key(
        "recoveryCatchup", i["agent"], i["timer"], i["last_missed"], i["occurrence"]
    ),
    "run_key.answer": lambda i: run_key("answer", i["agent"], i["prompt_item"], i["response"] or "expired"),
    # Actions and operations.
    "action_stable_id": action_stable_id,
    "operation_id.action": lambda i: operation_id("run", i["run"], i["action"]),
    "operation_id.client": lambda i: operation_id("person", i["actor"], i["client_key"]),
    "operation_id.point": lambda i: operation_id("point", i["run"], i["cycle"], i["point"]),
    "operation_id.consumer": lambda i: operation_id("consumer", i["consumer"], i["before"]),
    "operation_id.timer_batch": timer_batch,
    "operation_id.part": lambda i: operation_id("part", i["operation"], i["name"]),
    # Records.
    "created_id": lambda i: derived_id("", "verger.created.v1", i["operation"], i["kind"], i["k"]),
    "keyed_id": lambda i: keyed_id("", i["kind"], i["scope"], i["key"]),
    "workspace_id": lambda i: keyed_id("ws_", "workspace", "", i["slug"]),
    "category_id": lambda i: keyed_id("cat_", "category", i["workspace"], i["slug"]),
    "label_id": lambda i: keyed_id("label_", "label", i["workspace"], i["slug"]),
    "person_id.owner": lambda i: keyed_id("person_", "person", "", "owner"),
    # Records of runs.
    "artifact_id": artifact_id,
    "wake_id": lambda i: id_of_key("wake_", i["run"]),
    "run_id": lambda i: id_of_key("run_", i["run"]),
    "prompt_item_id": lambda i: derived_id("ask_", "verger.created.v1", i["operation"], "prompt_item", "0"),
    "prompt_response_id": lambda i: derived_id("answer_", "verger.prompt_response.v1", i["prompt_item"]),
    "budget_limit_id": lambda i: keyed_id("", "budget_limit", "", i["agent"]),
    "budget_usage_id": lambda i: derived_id("", "verger.budget_usage.v1", i["agent"], i["day"], i["host"]),
    "switch_id": lambda i: keyed_id("", "switch", "", i["subject"]),
    "manifest_id": lambda i: derived_id("manifest_", "verger.manifest.v1", i["content"]),
    # The log.
    "body_hash": body_hash,
    "genesis": lambda i: key("verger.genesis.v1", i["domain"], i["host"], i["stream"]),
    "entry_chain": entry_chain,
    "cursor_hash": cursor_hash,
}


def recompute(vector):
    """The vector as it should be; without `input_text` where no array is hashed."""
    text, expected = DERIVATIONS[vector["derivation"]](vector["inputs"])
    return {
        "derivation": vector["derivation"],
        "inputs": vector["inputs"],
        **({} if text is None else {"input_text": text}),
        "expected": expected,
    }


def differing(vectors):
    faults = []
    for number, vector in enumerate(vectors, 1):
        name = f"vector {number} ({vector.get('derivation')})"
        try:
            right = recompute(vector)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            faults.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if vector != right:
            faults.append(f"{name}: differs\n  is        {json.dumps(vector)}\n  should be {json.dumps(right)}")
    return faults


def check(vectors):
    faults = differing(vectors)
    named = [vector.get("derivation") for vector in vectors]
    faults += [f"{derivation}: no vector" for derivation in DERIVATIONS if derivation not in named]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"golden vectors: {len(vectors)} checked, {len(faults)} faults")
    return 1 if faults else 0


def write(vectors):
    """One field per line, ASCII only, so that no editor can change what is hashed."""
    changed = differing([vector for vector in vectors if "expected" in vector])
    if changed:
        print(*changed, "nothing written: delete `expected` where the change is meant", sep="\n", file=sys.stderr)
        return 1
    fields = lambda vector: ",\n   ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in vector.items())
    text = ",\n".join("  {" + fields(recompute(vector)) + "}" for vector in vectors)
    VECTORS.write_text(f"[\n{text}\n]\n")
    print(f"golden vectors: {len(vectors)} written")
    return 0


def main():
    parser = argparse.ArgumentParser(description="the golden vectors of `domain`, computed independently")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="recompute every vector, exit 1 if one differs")
    mode.add_argument("--write", action="store_true", help="fill in `input_text` and `expected`")
    arguments = parser.parse_args()
    vectors = json.loads(VECTORS.read_text())
    return check(vectors) if arguments.check else write(vectors)


if __name__ == "__main__":
    sys.exit(main())
