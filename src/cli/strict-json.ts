import { readJson } from "../http/json.ts";
import { defaultLimits } from "../http/limits.ts";
import { HoldfastError, isHoldfastError } from "../wire/holdfast-error.ts";
import { FileError } from "./failures.ts";
import { assertSize, readResource } from "./job-source.ts";

/** What is sent stands one level deep in the request that we make of it. */
const levelsMax = defaultLimits.jsonDepth - 1;

/**
 * Reads what somebody wrote as strictly as the server would, who only sees what was made of it: two members of one
 * name, or a number that would be rounded, are mistakes here too, and their place is one in what was written.
 */
export function strictJson(text: string, what: string): unknown {
  try {
    return parse(new TextEncoder().encode(text), what);
  } catch (error) {
    if (!isHoldfastError(error)) throw error;
    throw new FileError(what, text, error);
  }
}

/** The same of a file, or of standard input for `-`. */
export function strictJsonFile(file: string): Promise<unknown> {
  return readResource(file, (bytes, name) => {
    assertSize(bytes, name);
    return parse(bytes, name);
  });
}

function parse(bytes: Uint8Array, what: string): unknown {
  // Editors that write a mark of byte order don't show it: the first column is the one after it.
  const marked = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
  try {
    return readJson(marked ? bytes.subarray(3) : bytes, { depth: levelsMax });
  } catch (error) {
    if (!isHoldfastError(error)) throw error;
    const { fields } = error;
    throw new HoldfastError("invalid_json", `${what} is not JSON that can be taken`, { fields });
  }
}
