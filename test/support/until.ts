import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";

const pauseMilliseconds = 20;
const withinMilliseconds = 20_000;

/** Wait for a condition, not for a time: polls until the answer is neither null, undefined nor false. */
export async function until<T>(
  what: string,
  probe: () => Promise<T> | T,
  within = withinMilliseconds,
): Promise<NonNullable<T>> {
  const deadline = performance.now() + within;
  for (;;) {
    const answer = await probe();
    if (answer !== null && answer !== undefined && answer !== false) return answer;
    if (performance.now() > deadline) assert.fail(`waited ${within} ms in vain: ${what}`);
    await delay(pauseMilliseconds);
  }
}
