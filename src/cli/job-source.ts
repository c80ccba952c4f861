import { open } from "node:fs/promises";
import { isHoldfastError } from "../wire/holdfast-error.ts";
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

/** As text. Too much of it, or what is no UTF-8, is wrong usage. */
export async function readText(file: string): Promise<string> {
  const name = file === "-" ? "standard input" : file;
  const bytes = await readBounded(file);
  if (bytes.byteLength > jobLimits.fileBytesMax) {
    throw new UsageError(`${name} is too large: at most ${jobLimits.fileBytesMax} bytes are read`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new UsageError(`${name} is not UTF-8`);
  }
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
