import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Cursor, decodeCursor, encodeCursor } from "./cursor.ts";
import { HoldfastError, isHoldfastError } from "./errors.ts";
import { brandId, type TenantId } from "./ids.ts";

const cursor: Cursor = {
  incarnation: "0190a000-0000-7000-8000-000000000001",
  tenant: brandId<TenantId>("tenant-a"),
  filter: { kinds: ["job", "attempt"], root: null },
  position: 42n,
};
const here = { ...cursor, floor: 10n, head: 100n };
const refused = (code: "invalid_cursor" | "cursor_expired") => (error: unknown) =>
  isHoldfastError(error, code);

test("G7: a cursor gives its position back, whatever the order of the kinds in the filter", () => {
  assert.equal(decodeCursor(encodeCursor(cursor), here), 42n);
  assert.equal(
    decodeCursor(encodeCursor({ ...cursor, filter: { kinds: ["attempt", "job"], root: null } }), here),
    42n,
  );
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }), (position) => {
      const text = encodeCursor({ ...cursor, position });
      assert.match(text, /^[A-Za-z0-9_-]+$/);
      assert.equal(decodeCursor(text, { ...here, floor: 0n, head: 2n ** 63n - 1n }), position);
    }),
  );
});

test("G7: a cursor below the floor is expired, and comes with a fresh one at the head", () => {
  const text = encodeCursor({ ...cursor, position: 9n });
  assert.throws(
    () => decodeCursor(text, here),
    (error) => {
      assert.ok(error instanceof HoldfastError && error.code === "cursor_expired");
      assert.equal(error.entry.status, 410);
      assert.equal(decodeCursor(String(error.extra["cursor"]), here), 100n);
      return true;
    },
  );
  assert.equal(decodeCursor(encodeCursor({ ...cursor, position: 10n }), here), 10n);
});

test("G7: after a restore, cursors of before are expired", () => {
  const restored = { ...here, incarnation: "0190a000-0000-7000-8000-000000000002" };
  assert.throws(() => decodeCursor(encodeCursor(cursor), restored), refused("cursor_expired"));
});

test("G7: a cursor of another tenant or filter, ahead of the store, or of no server is not valid", () => {
  const text = encodeCursor(cursor);
  assert.throws(
    () => decodeCursor(text, { ...here, tenant: brandId<TenantId>("tenant-b") }),
    refused("invalid_cursor"),
  );
  assert.throws(
    () => decodeCursor(text, { ...here, filter: { kinds: [], root: null } }),
    refused("invalid_cursor"),
  );
  assert.throws(
    () => decodeCursor(encodeCursor({ ...cursor, position: 101n }), here),
    refused("invalid_cursor"),
  );
  fc.assert(
    fc.property(fc.string(), (text) => {
      assert.throws(() => decodeCursor(text, here), refused("invalid_cursor"));
    }),
  );
});
