import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { instant } from "../../core/time.ts";
import { decodeFrame, encodeFrame, type Frame } from "./log-frames.ts";

const frames: fc.Arbitrary<Frame> = fc
  .tuple(
    fc.constantFrom("stdout", "stderr"),
    fc.bigInt(0n, 2n ** 62n).map(instant),
    fc.uint8Array({ maxLength: 300 }),
  )
  .map(([stream, at, bytes]) => ({ stream, at, bytes }));

test("E19: a frame comes back as it was written, and any shorter piece of it is no frame", () => {
  fc.assert(
    fc.property(frames, fc.nat(), (frame, cut) => {
      const encoded = encodeFrame(frame);
      assert.deepEqual(decodeFrame(encoded), { frame, size: encoded.length });
      assert.equal(decodeFrame(encoded.subarray(0, cut % encoded.length)), null);
    }),
  );
});

test("E19: a frame with a changed byte is not taken for one", () => {
  fc.assert(
    fc.property(frames, fc.nat(), fc.integer({ min: 1, max: 255 }), (frame, place, change) => {
      const encoded = encodeFrame(frame);
      const at = place % encoded.length;
      encoded[at] = (encoded[at] ?? 0) ^ change;
      assert.equal(decodeFrame(encoded), null);
    }),
  );
});
