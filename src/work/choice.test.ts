import assert from "node:assert/strict";
import { test } from "node:test";
import { brandId, type TenantId } from "../core/ids.ts";
import { permittable } from "./choice.ts";
import { defineWork, type WorkDefinition } from "./define.ts";
import { openLines } from "./lines.ts";
import { legacy } from "./policy.ts";
import type { Claimed, Cursor } from "./turn.store.ts";

const of = (safety: "idempotent" | "manual_resolution") =>
  defineWork<unknown, null>({
    name: safety,
    version: "1",
    safety,
    policy: legacy(),
    run: () => null,
  }) as WorkDefinition;
const lanes = new Map([
  ["1.free", of("idempotent")],
  ["2.strict", of("manual_resolution")],
]);
const item = (lane: string, n: number, heldUntilMs = 100): Claimed => ({
  tenant: brandId<TenantId>("acme"),
  id: String(n),
  lane,
  epoch: BigInt(n),
  row: "(0,1)",
  heldUntilMs,
});
const ids = (items: readonly Claimed[]) => items.map(({ id }) => id).join("");
const standing = { lanes, concurrency: 2, ahead: 2, taken: 0, max: 500 };

test("W11: permits go ahead of free handlers only for what may be repeated", () => {
  const free = [1, 2, 3, 4, 5].map((n) => item("1.free", n));
  const strict = [1, 2, 3, 4, 5].map((n) => item("2.strict", n));
  assert.equal(ids(permittable(free, standing, 0)), "1234");
  assert.equal(ids(permittable(strict, standing, 0)), "12");
  assert.equal(ids(permittable(strict, { ...standing, taken: 2 }, 0)), "");
  assert.equal(ids(permittable(free, { ...standing, taken: 3 }, 0)), "1");
});

test("W11: a strict item of a turn runs at once: nothing is permitted ahead of it or behind it", () => {
  const mixed = [item("2.strict", 1), item("1.free", 2), item("1.free", 3)];
  assert.equal(ids(permittable(mixed, standing, 0)), "12");
});

test("W5: what is no longer held, and what nobody here runs, asks for nothing", () => {
  const some = [item("1.free", 1, 50), item("3.other", 2), item("1.free", 3)];
  assert.equal(ids(permittable(some, standing, 50)), "3");
});

const cursor = (lane: string): Cursor => [lane, 2, "acme", "2026-01-01 00:00:00+00", "id"];

const saw = (cursors: readonly Cursor[], emptied: readonly Cursor[] = []) => ({ cursors, emptied });

test("W11: turns take from lines of one kind, permitted ahead or not", () => {
  const lines = openLines(lanes);
  assert.deepEqual([lines.from.length, lines.stale], [0, true]);
  lines.seen(saw([cursor("1.free")]), 0, 0);
  assert.deepEqual([lines.from.length, lines.ahead, lines.stale], [1, true, false]);
  lines.seen(saw([cursor("2.strict")]), 0, 0);
  assert.deepEqual([lines.from.length, lines.ahead], [1, false]);
  lines.seen(saw([cursor("2.strict"), cursor("1.free")]), 0, 0);
  assert.equal(lines.from.length, 0);
});

test("W5: of two turns the later one has seen more, and a refused one lets nothing be taken for a while", () => {
  const lines = openLines(lanes);
  lines.seen(saw([cursor("1.free")]), 0, 0);
  const later: Cursor = ["1.free", 2, "acme", "2026-01-02 00:00:00+00", "later"];
  lines.goOn(saw([later]), 2);
  lines.goOn(saw([cursor("1.free")]), 1);
  assert.deepEqual(lines.from, [later]);
  lines.drop(60_000);
  lines.seen(saw([cursor("1.free")]), 3, 0);
  assert.deepEqual(lines.from, []);
});

test("W5: after a ring the lines that were emptied last are taken from where they ended, and a claim waits for that", () => {
  const lines = openLines(lanes);
  assert.equal(lines.guess(), false);
  const ended: Cursor = ["1.free", 2, "acme", "2026-01-02 00:00:00+00", "last"];
  lines.seen(saw([], [cursor("1.free")]), 0, 0);
  lines.seen(saw([], [ended]), 1, 0);
  assert.deepEqual([lines.from, lines.stale], [[], true]);
  assert.equal(lines.guess(), true);
  assert.deepEqual([lines.from, lines.stale], [[ended], false]);
  lines.goOn(saw([], []), 2);
  assert.deepEqual([lines.from, lines.stale], [[], true]);
  // It rings for other things than work, too: after some guesses that found nothing there are no more.
  for (let turn = 3; lines.guess(); turn += 1) {
    assert.ok(turn < 10);
    lines.goOn(saw([], []), turn);
  }
  lines.goOn(saw([], [ended]), 10);
  assert.equal(lines.guess(), true);
  lines.goOn(saw([ended], []), 11);
  assert.deepEqual([lines.from, lines.guess()], [[ended], false]);
});

test("W11: lines of both kinds are not guessed at together, and none after a turn that was refused", () => {
  const lines = openLines(lanes);
  lines.seen(saw([], [cursor("1.free"), cursor("2.strict")]), 0, 0);
  assert.equal(lines.guess(), false);
  const others = openLines(lanes);
  others.seen(saw([], [cursor("1.free")]), 0, 0);
  others.drop(60_000);
  assert.equal(others.guess(), false);
});
