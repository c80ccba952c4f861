import assert from "node:assert/strict";
import { test } from "node:test";
import { deliveryOf } from "./delivery.ts";

const nowMs = Date.parse("2026-11-29T20:00:00Z");
const of = (status: number, headers: Record<string, string> = {}) => deliveryOf({ status, headers }, nowMs);

test("S8: 2xx is a receipt, 410 the end, and everything else is tried again", () => {
  for (const status of [200, 202, 204, 299]) assert.deepEqual(of(status), { delivered: true, status });
  for (const status of [100, 400, 401, 404, 408, 410, 429, 500, 503]) {
    const error = `The destination answered ${status}.`;
    assert.deepEqual(of(status), { delivered: false, status, error, final: status === 410 });
  }
});

test("S8: Retry-After is seconds or a date; anything else is not heeded", () => {
  const pause = (text: string) => {
    const delivery = of(503, { "retry-after": text });
    return delivery.delivered ? null : delivery.retryAfter;
  };
  assert.equal(pause("120"), 120_000_000n);
  assert.equal(pause("Sun, 29 Nov 2026 20:01:30 GMT"), 90_000_000n);
  for (const text of ["Sun, 29 Nov 2026 19:00:00 GMT", "soon", "", "-5", "9".repeat(40)]) {
    assert.equal(pause(text), undefined, text);
  }
});
