import assert from "node:assert/strict";
import { test } from "node:test";
import { mintToken } from "../../src/core/tenant.ts";
import { failedLogins } from "../../src/http/failed-logins.ts";
import { isHoldfastError } from "../../src/wire/holdfast-error.ts";
import { openBench } from "../support/gateway.ts";

const policy = { requests: 5, windowSeconds: 60 };

test("G11: an address that shows bad credentials is stopped before the database is asked; good ones still get in", async (t) => {
  const closers: (() => void | Promise<void>)[] = [];
  t.after(async () => {
    for (const close of closers.toReversed()) await close();
  });
  const bench = await openBench(
    { after: (close) => void closers.push(close) },
    { limits: { failedLogins: policy } },
  );
  let asked = 0;
  bench.kernel.db.pools.of("gateway").on("acquire", () => {
    asked += 1;
  });
  const show = (token: string) =>
    fetch(bench.url("/v1/jobs"), { headers: { authorization: `Bearer ${token}` } });

  assert.equal((await show(bench.a.token)).status, 200);
  for (let n = 0; n < policy.requests; n += 1) assert.equal((await show(mintToken())).status, 401);
  const before = asked;
  for (let n = 0; n < 20; n += 1) {
    const stopped = await show(mintToken());
    assert.equal(stopped.status, 429);
    assert.ok(Number(stopped.headers.get("retry-after")) >= 1);
    assert.equal(((await stopped.json()) as { code: string }).code, "too_many_requests");
  }
  assert.equal(asked, before, "nobody looked any of them up");
  // Who was let in before shares the address, and goes on.
  assert.equal((await show(bench.a.token)).status, 200);
  // Without a credential there is none to guess.
  assert.equal((await fetch(bench.url("/v1/jobs"))).status, 401);
  assert.equal((await fetch(bench.url("/healthz"))).status, 200);
});

test("G11: however many addresses fail, only so many are remembered; after a while they may try again", () => {
  let now = 0;
  const logins = failedLogins({ requests: 2, windowSeconds: 10 }, 3, () => now);
  const stopped = (address: string, shown = "bad") => {
    try {
      logins.admit(address, shown);
      return false;
    } catch (error) {
      assert.ok(isHoldfastError(error, "too_many_requests"));
      return true;
    }
  };
  for (let n = 0; n < 100; n += 1) {
    logins.failed(`10.0.0.${n}`, "bad");
    logins.proven(`good ${n}`);
  }
  assert.equal(logins.kept, 6);
  // One IPv6 network is one, however its addresses are written.
  logins.failed("2001:db8::1", "bad");
  assert.equal(stopped("2001:db8:0:0:5::2"), false);
  logins.failed("2001:db8:0:0:ffff::3", "good 98");
  assert.equal(stopped("2001:db8:0:0:5::2"), true);
  assert.equal(stopped("2001:db8::2", "good 99"), false);
  assert.equal(stopped("2001:db8::2", "good 98"), true, "it was good, and is so no longer");
  assert.equal(stopped("2001:db8:0:1::1"), false);
  now += 5_000;
  assert.equal(stopped("2001:db8::1"), false);
});
