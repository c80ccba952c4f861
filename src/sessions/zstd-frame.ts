import { Transform } from "node:stream";
import { BundleRefusal } from "./bundle.ts";

/**
 * Passes on exactly one zstd frame (RFC 8878, 3.1.1) and refuses anything before or after it: the decompressor
 * stops at its end without a word. The frame's last byte is kept back until the source has ended, so whoever
 * reads what was decompressed can't be done before that is certain.
 */
export function singleFrame(): Transform {
  const walk = frameWalk();
  let last: Buffer | undefined;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      if (chunk.length === 0) return done();
      if (walk.take(chunk) !== chunk.length) {
        return done(new BundleRefusal("damaged", "this is not one zstd frame"));
      }
      if (last !== undefined) this.push(last);
      last = chunk.subarray(-1);
      done(null, chunk.length > 1 ? chunk.subarray(0, -1) : undefined);
    },
    flush(done) {
      if (!walk.whole()) return done(new BundleRefusal("damaged", "the zstd frame ends too early"));
      done(null, last);
    },
  });
}

/**
 * What Node's compressor puts behind its frame when its stream ends: a frame of nothing, which says nothing and
 * which not every release writes.
 */
const emptyFrame = Buffer.from("28b52ffd2000010000", "hex");

/** Passes on the one frame of our own compressor, without the empty one after it. */
export function withoutEmptyFrame(): Transform {
  const walk = frameWalk();
  let rest = Buffer.alloc(0);
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const taken = walk.take(chunk) ?? 0;
      rest = Buffer.concat([rest, chunk.subarray(taken)]);
      done(null, chunk.subarray(0, taken));
    },
    flush(done) {
      const sound = walk.whole() && (rest.length === 0 || rest.equals(emptyFrame));
      done(sound ? null : new Error("the compressor wrote more than one frame"));
    },
  });
}

interface FrameWalk {
  /** How many of these bytes belong to the frame; undefined when it can't be one. */
  take(chunk: Buffer): number | undefined;
  whole(): boolean;
}

/** What comes next, and how many bytes of it are missing. `header` and `content` are stepped over unread. */
interface Step {
  readonly name: "magic" | "descriptor" | "header" | "block" | "content" | "checksum" | "end";
  readonly bytes: number;
}

const magic = 0xfd2fb528;
const block: Step = { name: "block", bytes: 3 };

/** Steps from one header to the next, and over what lies between. */
function frameWalk(): FrameWalk {
  let step: Step = { name: "magic", bytes: 4 };
  let taken = 0;
  /** Of the bytes of this step, little-endian, while it is short. */
  let value = 0;
  let checksum = false;
  let last = false;

  const afterBlock = (): Step => {
    if (!last) return block;
    return checksum ? { name: "checksum", bytes: 4 } : { name: "end", bytes: 0 };
  };

  /** The step after the one that is complete; undefined when this is no frame. */
  function after(): Step | undefined {
    switch (step.name) {
      case "magic":
        return value === magic ? { name: "descriptor", bytes: 1 } : undefined;
      case "descriptor": {
        const single = (value & 0x20) !== 0;
        const sizeFlag = value >> 6;
        checksum = (value & 0x04) !== 0;
        // A reserved bit, or a dictionary, which a reader would have to have beside the bundle.
        if ((value & 0x0b) !== 0) return undefined;
        const size = sizeFlag === 0 ? Number(single) : 2 ** sizeFlag;
        return { name: "header", bytes: size + (single ? 0 : 1) };
      }
      case "header":
        return block;
      case "block": {
        last = (value & 1) !== 0;
        const type = (value >> 1) & 3;
        if (type === 3) return undefined;
        const bytes = type === 1 ? 1 : value >> 3;
        return bytes === 0 ? afterBlock() : { name: "content", bytes };
      }
      case "content":
        return afterBlock();
      case "checksum":
        return { name: "end", bytes: 0 };
      case "end":
        return undefined;
      default:
        return step.name satisfies never;
    }
  }

  return {
    take(chunk) {
      for (let at = 0; at < chunk.length; ) {
        if (step.name === "end") return at;
        const piece = chunk.subarray(at, at + step.bytes - taken);
        if (step.bytes <= 4) {
          for (const [index, byte] of piece.entries()) value += byte * 256 ** (taken + index);
        }
        at += piece.length;
        taken += piece.length;
        if (taken < step.bytes) continue;
        const next = after();
        if (next === undefined) return undefined;
        step = next;
        taken = value = 0;
      }
      return chunk.length;
    },
    whole: () => step.name === "end",
  };
}
