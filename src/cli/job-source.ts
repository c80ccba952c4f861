import { open } from "node:fs/promises";
import { soundBytes } from "../http/json.ts";
import { HoldfastError, isHoldfastError } from "../wire/holdfast-error.ts";
import { type JobSubmission, jobLimits } from "../wire/job.ts";
import { parseJobFile } from "../wire/job-file.ts";
import { checkSubmission } from "../wire/submission.ts";
import { FileError, UsageError } from "./failures.ts";

/** A job from a file, or from standard input for `-`, with what the flags change in it. */
export async function readJob(
  file: string,
  changes: { readonly labels: Readonly<Record<string, string>>; readonly priority: number | undefined },
): Promise<JobSubmission> {
  const { submission } = await readResource(file, parseJobFile);
  const { metadata } = submission;
  if (Object.keys(changes.labels).length === 0 && changes.priority === undefined) return submission;
  return checkSubmission({
    ...submission,
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, ...changes.labels },
      ...(changes.priority === undefined ? {} : { priority: changes.priority }),
    },
  });
}

/** What is in a file, or in standard input for `-`; its mistakes are shown with their lines. */
export async function readResource<T>(
  file: string,
  parse: (content: Uint8Array, name: string) => T,
): Promise<T> {
  const bytes = await readBounded(file);
  const name = file === "-" ? "standard input" : file;
  try {
    return parse(bytes, name);
  } catch (error) {
    if (!isHoldfastError(error)) throw error;
    throw new FileError(name, new TextDecoder().decode(bytes), error);
  }
}

/**
 * As text, without a mark of byte order. Too much of it is wrong usage, as is what is no UTF-8 or has a character that
 * nobody can keep.
 */
export async function readText(file: string): Promise<string> {
  const bytes = await readBounded(file);
  const name = file === "-" ? "standard input" : file;
  assertSize(bytes, name);
  const text = new TextDecoder().decode(bytes);
  const sound = soundBytes(bytes);
  if (sound < bytes.byteLength) {
    const at = new TextDecoder().decode(bytes.subarray(0, sound)).length;
    throw misread(name, text, at, `${name} is not UTF-8`, `byte ${sound + 1} is not valid UTF-8`);
  }
  const nul = text.indexOf("\0");
  if (nul >= 0) throw misread(name, text, nul, `${name} is no text`, "NUL can't be stored");
  return text;
}

function misread(name: string, text: string, at: number, detail: string, message: string): FileError {
  const before = text.slice(0, at);
  const place = { line: before.split("\n").length, column: at - before.lastIndexOf("\n") };
  const fields = [{ pointer: "", message, ...place }];
  return new FileError(name, text, new HoldfastError("invalid_request", detail, { fields }));
}

export function assertSize(bytes: Uint8Array, name: string): void {
  if (bytes.byteLength <= jobLimits.fileBytesMax) return;
  throw new UsageError(`${name} is too large: at most ${jobLimits.fileBytesMax} bytes are read`);
}

/** At most a little more than a job file may have: enough to know that it is too large. */
async function readBounded(file: string): Promise<Uint8Array> {
  const parts: Buffer[] = [];
  let size = 0;
  try {
    const handle = file === "-" ? null : await open(file);
    const stream = handle === null ? process.stdin : handle.createReadStream();
    for await (const part of stream) {
      const bytes = Buffer.from(part as Buffer);
      parts.push(bytes);
      size += bytes.length;
      if (size > jobLimits.fileBytesMax) break;
    }
  } catch (error) {
    throw new UsageError(`${file} can't be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  return Buffer.concat(parts);
}
