import assert from "node:assert/strict";
import { test } from "node:test";
import { rateHeaders, rateLimiter } from "./rate-limit.ts";

const policy = { requests: 10, windowSeconds: 5 };

test("a caller may spend all at once, then as fast as the window gives", () => {
  let now = 0;
  const limiter = rateLimiter(policy, 100, () => now);
  const spend = (times: number) =>
    Array.from({ length: times }, () => limiter.take("a")).filter(({ allowed }) => allowed).length;
  assert.equal(spend(15), 10);
  const refused = limiter.take("a");
  assert.deepEqual(refused, { allowed: false, remaining: 0, resetSeconds: 5, retryAfterSeconds: 1 });
  assert.equal(limiter.take("b").allowed, true, "others have their own");
  now = 1_000;
  assert.equal(spend(5), 2);
  now = 60_000;
  assert.equal(spend(15), 10, "and never more than the window's");
});

test("the fields say quota, window, what is left and until when", () => {
  const limiter = rateLimiter(policy, 100, () => 0);
  limiter.take("a");
  assert.deepEqual(rateHeaders(policy, limiter.take("a")), {
    "ratelimit-policy": '"principal";q=10;w=5',
    ratelimit: '"principal";r=8;t=1',
  });
});

test("however many callers come, only so many are kept, and who is counted is kept longest", () => {
  let now = 0;
  const limiter = rateLimiter(policy, 50, () => now);
  for (let n = 0; n < 10; n += 1) limiter.take("greedy");
  assert.equal(limiter.take("greedy").allowed, false);
  let granted = 0;
  for (let n = 0; n < 1_000; n += 1) {
    now += 1;
    limiter.take(`passer-by-${n}`);
    if (n % 10 === 9) granted += limiter.take("greedy").allowed ? 1 : 0;
  }
  // A second has passed: two requests' worth.
  assert.equal(granted, 2);
  assert.ok(limiter.kept <= 50, `${limiter.kept}`);
});
