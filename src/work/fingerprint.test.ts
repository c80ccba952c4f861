import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { instant, microseconds, seconds } from "../core/time.ts";
import { fingerprint, fingerprintText1, type Request } from "./fingerprint.ts";
import { deadlineOnly, legacy, planned } from "./policy.ts";

interface Vector {
  readonly request: Omit<Request, "delay" | "notAfter"> & { readonly delay: string };
  readonly text: string;
  readonly sha256: string;
}

const file = join(import.meta.dirname, "../../test/fixtures/work-fingerprint-v1.json");
const vectors = JSON.parse(readFileSync(file, "utf8")) as readonly Vector[];

test("W9: the bytes of v1 never change", () => {
  assert.equal(vectors.length, 4);
  for (const { request, text, sha256 } of vectors) {
    const whole = { ...request, delay: microseconds(BigInt(request.delay)), notAfter: null };
    assert.equal(fingerprintText1(whole), text);
    assert.equal(fingerprint(whole, legacy()), sha256);
    // No timing fact is in it: another legacy policy has the same.
    assert.equal(fingerprint(whole, legacy({ attempts: 3, elapsed: seconds(5) })), sha256);
  }
});

const request: Request = {
  name: "charge",
  version: "1",
  input: { invoice: "i-1" },
  queue: null,
  priority: 2,
  delay: seconds(0),
  providerKey: null,
  circuitKey: null,
  notAfter: instant(1_800_000_000_000_000n),
};
const plan = { version: "p", offsets: [seconds(0), seconds(1)], circuit: seconds(2) };
const policy = planned(plan);

test("W9: v2 covers each timing fact", () => {
  const one = fingerprint(request, policy);
  const others = [
    fingerprint({ ...request, notAfter: null }, policy),
    fingerprint({ ...request, notAfter: instant(1_800_000_000_000_001n) }, policy),
    fingerprint(request, planned({ ...plan, version: "q" })),
    fingerprint(request, planned({ ...plan, offsets: [seconds(0), microseconds(1_000_001n)] })),
    fingerprint(request, planned({ ...plan, circuit: microseconds(2_000_001n) })),
    fingerprint(request, planned(plan, { elapsed: seconds(3) })),
    fingerprint(request, planned(plan, { lease: seconds(3) })),
    fingerprint(request, deadlineOnly()),
    fingerprint(request, deadlineOnly({ attempts: 3 })),
    fingerprint(request, legacy()),
  ];
  assert.equal(new Set([one, ...others]).size, 11);
  assert.equal(fingerprint({ ...request }, planned({ ...plan })), one);
});

test("W9: the server's acceptance time is no part of a request", () => {
  const withTime = { ...request, accepted: instant(5n) };
  assert.equal(fingerprint(withTime, policy), fingerprint(request, policy));
});
