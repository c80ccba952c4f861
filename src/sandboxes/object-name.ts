import { RuntimeRefusal } from "../core/runtime.port.ts";

const namePattern = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,118}[A-Za-z0-9])?$/;

/** Names come from outside and become file names: letters, digits, inner `.`, `_` and `-`, at most 120. */
export function checkName(text: string, what: string): string {
  if (!namePattern.test(text)) {
    throw new RuntimeRefusal(
      "invalid",
      `${what} can't be a file name: ${JSON.stringify(text.slice(0, 130))}`,
    );
  }
  return text;
}
