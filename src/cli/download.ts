import { createHash, randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { type FileHandle, link, open, rename, rm } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { HoldfastError } from "../wire/holdfast-error.ts";
import type { ArtifactView } from "../wire/job.ts";
import { type CommandContext, clientOf, type ServerFlags } from "./context.ts";
import { UsageError } from "./failures.ts";
import { jobIdOf } from "./job-id.ts";
import { artifactWords } from "./job-words.ts";
import { visible } from "./visible.ts";

export interface DownloadFlags extends ServerFlags {
  readonly outputFile?: string;
  readonly force?: boolean;
}

/** `holdfast download ID [NAME]`: the file appears whole and verified, or not at all. */
export async function download(
  context: CommandContext,
  typed: string,
  name: string | undefined,
  flags: DownloadFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const id = await jobIdOf(client, typed);
  const wanted = name ?? onlyName(await client.listArtifacts(id));
  const path = resolve(context.directory, flags.outputFile ?? fileNameOf(wanted));
  const force = flags.force === true;
  if (!force && existsSync(path)) throw alreadyThere(path);
  const { artifact, body } = await client.downloadArtifact(id, wanted);
  await writeVerified(path, artifact, body, force);
  if (flags.output === "json") return context.terminal.out(`${JSON.stringify({ path, artifact })}\n`);
  await context.terminal.out(`${visible(path)}  ${artifactWords(artifact)}\n`);
}

function onlyName(artifacts: readonly ArtifactView[]): string {
  const present = artifacts.filter(({ removed_at }) => removed_at === null);
  const [first] = present;
  if (first === undefined) throw new HoldfastError("not_found", "the job has no artifact");
  if (present.length === 1) return first.name;
  const names = present.map(({ name }) => visible(name)).join(", ");
  throw new UsageError(`the job has several artifacts: ${names}`, "Give the name of one of them.");
}

/** The server's name must not choose the directory. */
function fileNameOf(name: string): string {
  if (
    name === basename(name) &&
    ![".", "..", ""].includes(name) &&
    name === visible(name) &&
    !name.includes("\\")
  ) {
    return name;
  }
  throw new UsageError(`the artifact's name ${visible(name)} is no plain file name`, "Give -O FILE.");
}

/** What the bytes have to be. */
type Content = Pick<ArtifactView, "bytes" | "sha256">;

export async function writeVerified(
  path: string,
  artifact: Content,
  body: ReadableStream<Uint8Array>,
  force: boolean,
): Promise<void> {
  const part = `${path}.${randomUUID()}.part`;
  const file = await open(part, "wx").catch((error: unknown) => {
    throw new UsageError(
      `${path} can't be written: ${error instanceof Error ? error.message : String(error)}`,
    );
  });
  try {
    try {
      await copyVerified(file, artifact, body);
      await file.sync();
    } finally {
      await file.close();
    }
    // Unlike a rename, a link never replaces what somebody put there meanwhile.
    if (force) await rename(part, path);
    else await link(part, path);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") throw alreadyThere(path);
    throw error;
  } finally {
    await rm(part, { force: true });
  }
}

async function copyVerified(
  file: FileHandle,
  artifact: Content,
  body: ReadableStream<Uint8Array>,
): Promise<void> {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const part of body) {
    bytes += part.byteLength;
    if (bytes > artifact.bytes) break;
    hash.update(part);
    await file.writeFile(part);
  }
  const found = hash.digest("hex");
  if (bytes === artifact.bytes && found === artifact.sha256) return;
  throw new HoldfastError(
    "content_mismatch",
    `what arrived is not what was promised: ${bytes} bytes sha256:${found}, not ${artifact.bytes} bytes sha256:${artifact.sha256}`,
  );
}

export function alreadyThere(path: string): UsageError {
  return new UsageError(`${path} exists`, "Give another file with -O, or --force to replace it.");
}
