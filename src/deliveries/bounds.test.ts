import assert from "node:assert/strict";
import { test } from "node:test";
import { brandId, type TenantId } from "../core/ids.ts";
import { openPlaces } from "./bounds.ts";

const [a, b] = [brandId<TenantId>("a"), brandId<TenantId>("b")];

test("S8: a tenant gets what is left of its places, and one that has enough is passed over", () => {
  const places = openPlaces({ deliveriesMax: 5, tenantMax: 3, originMax: 2 });
  assert.deepEqual(places.room(), { limit: 5, quota: 3, full: [] });
  const leave = places.enter(a);
  places.enter(a);
  assert.deepEqual(places.room(), { limit: 3, quota: 1, full: [] });
  places.enter(a);
  places.enter(b);
  assert.deepEqual(places.room(), { limit: 1, quota: 2, full: [a] });
  leave();
  assert.deepEqual([places.taken, places.room()], [3, { limit: 2, quota: 1, full: [] }]);
});

test("S8: an origin has its places for each tenant", () => {
  const places = openPlaces({ deliveriesMax: 5, tenantMax: 3, originMax: 1 });
  const leave = places.enterOrigin(a, "https://a.example");
  assert.ok(leave);
  assert.equal(places.enterOrigin(a, "https://a.example"), null);
  assert.ok(places.enterOrigin(b, "https://a.example") && places.enterOrigin(a, "https://b.example"));
  leave();
  assert.ok(places.enterOrigin(a, "https://a.example"));
});
