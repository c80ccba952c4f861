import { createHash, randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type PhaseCallback, PhaseFailure, phaseExit } from "./phase-callback.ts";

/** An expired capability is replaced this often; more means that the transfer can't keep up with any. */
const capabilitiesMax = 5;

export interface FileContent {
  readonly bytes: number;
  readonly sha256: string;
}

/** What the callback answered, as it came. */
export type Answer = Readonly<Record<string, unknown>>;

interface Capability {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Promise, send, confirm (E18). */
export async function uploadFile(
  callback: PhaseCallback,
  name: string,
  file: string,
  mediaType: string,
): Promise<FileContent> {
  const content = await contentOfFile(file);
  const path = `/objects/${encodeURIComponent(name)}`;
  await sendFile(callback, `${path}/upload`, { ...content, media_type: mediaType }, file, content);
  await callback.post(`${path}/complete`, content);
  return content;
}

/** Ask at `path` where a file goes, and send it there. */
export async function sendFile(
  callback: PhaseCallback,
  path: string,
  request: unknown,
  file: string,
  content: FileContent,
): Promise<void> {
  await withCapability(
    callback,
    path,
    request,
    (answer) => answer,
    async (capability) => {
      const response = await callback.exchange(({ signal, alive }) =>
        fetch(capability.url, {
          method: capability.method,
          headers: { ...capability.headers, "content-length": String(content.bytes) },
          body: Readable.toWeb(Readable.from(passing(createReadStream(file), alive))) as ReadableStream,
          duplex: "half",
          redirect: "error",
          signal,
        }),
      );
      await response.body?.cancel();
      return response.status;
    },
  );
}

/** The file appears under its name only when it is whole and has the promised digest. */
export async function downloadFile(
  callback: PhaseCallback,
  phase: string,
  name: string,
  file: string,
): Promise<FileContent> {
  const path = `/objects/${encodeURIComponent(phase)}/${encodeURIComponent(name)}/download`;
  return fetchFile(callback, path, (answer) => answer, file);
}

/** Ask at `path` where a file is, and fetch it. `pick` finds the capability and its content in the answer. */
export async function fetchFile(
  callback: PhaseCallback,
  path: string,
  pick: (answer: Answer) => Answer,
  file: string,
): Promise<FileContent> {
  const partial = `${file}.partial-${randomBytes(6).toString("hex")}`;
  try {
    // A place that can't be written to shows now, and is not taken for a fault of the network later.
    await writeFile(partial, "");
    const answer = await withCapability(callback, path, {}, pick, async (capability) => {
      const response = await callback.exchange(async ({ signal, alive }) => {
        const got = await fetch(capability.url, {
          method: capability.method,
          headers: { ...capability.headers, "accept-encoding": "identity" },
          redirect: "error",
          signal,
        });
        if (got.ok) await pipeline(passing(got.body ?? [], alive), createWriteStream(partial));
        return got;
      });
      return response.status;
    });
    const content = await contentOfFile(partial);
    if (content.bytes !== answer["bytes"] || content.sha256 !== answer["sha256"]) {
      const got = `${content.bytes} bytes sha256:${content.sha256}`;
      throw new PhaseFailure(phaseExit.mismatch, `${path}: ${got} came, which was not promised`);
    }
    await rename(partial, file);
    return content;
  } finally {
    await rm(partial, { force: true });
  }
}

async function* passing(bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, alive: () => void) {
  for await (const chunk of bytes) {
    alive();
    yield chunk;
  }
}

/** Ask for a capability and use it, again when it has expired meanwhile. Returns the callback's last answer. */
async function withCapability(
  callback: PhaseCallback,
  path: string,
  request: unknown,
  pick: (answer: Answer) => Answer,
  use: (capability: Capability) => Promise<number>,
): Promise<Answer> {
  for (let asked = 1; ; asked += 1) {
    const answer = pick(await callback.post(path, request));
    const status = await use(capabilityOf(path, answer));
    if (status >= 200 && status < 300) return answer;
    if (status !== 403 || asked === capabilitiesMax) {
      throw new PhaseFailure(phaseExit.refused, `${path}: the store answered with status ${status}`);
    }
  }
}

function capabilityOf(path: string, answer: Answer): Capability {
  const { method, url, headers } = answer;
  if (
    typeof method !== "string" ||
    typeof url !== "string" ||
    typeof headers !== "object" ||
    headers === null
  ) {
    throw new PhaseFailure(phaseExit.refused, `${path}: the answer is no capability`);
  }
  const entries = Object.entries(headers).map(([key, value]) => [key, String(value)] as const);
  return { method, url, headers: Object.fromEntries(entries) };
}

async function contentOfFile(file: string): Promise<FileContent> {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { bytes, sha256: hash.digest("hex") };
}
