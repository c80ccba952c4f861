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
  await withCapability(
    callback,
    `${path}/upload`,
    { ...content, media_type: mediaType },
    async (capability) => {
      const response = await callback.exchange(() =>
        fetch(capability.url, {
          method: capability.method,
          headers: { ...capability.headers, "content-length": String(content.bytes) },
          body: Readable.toWeb(createReadStream(file)) as ReadableStream,
          duplex: "half",
          redirect: "error",
        }),
      );
      await response.body?.cancel();
      return response.status;
    },
  );
  await callback.post(`${path}/complete`, content);
  return content;
}

/** The file appears under its name only when it is whole and has the promised digest. */
export async function downloadFile(
  callback: PhaseCallback,
  phase: string,
  name: string,
  file: string,
): Promise<FileContent> {
  const path = `/objects/${encodeURIComponent(phase)}/${encodeURIComponent(name)}/download`;
  const partial = `${file}.partial-${randomBytes(6).toString("hex")}`;
  try {
    // A place that can't be written to shows now, and is not taken for a fault of the network later.
    await writeFile(partial, "");
    const answer = await withCapability(callback, path, {}, async (capability) => {
      const response = await callback.exchange(async () => {
        const got = await fetch(capability.url, {
          method: capability.method,
          headers: { ...capability.headers, "accept-encoding": "identity" },
          redirect: "error",
        });
        if (got.ok) await pipeline(got.body ?? [], createWriteStream(partial));
        return got;
      });
      return response.status;
    });
    const content = await contentOfFile(partial);
    if (content.bytes !== answer["bytes"] || content.sha256 !== answer["sha256"]) {
      const got = `${content.bytes} bytes sha256:${content.sha256}`;
      throw new PhaseFailure(phaseExit.mismatch, `${phase}/${name}: ${got} came, which was not promised`);
    }
    await rename(partial, file);
    return content;
  } finally {
    await rm(partial, { force: true });
  }
}

/** Ask for a capability and use it, again when it has expired meanwhile. Returns the callback's last answer. */
async function withCapability(
  callback: PhaseCallback,
  path: string,
  request: unknown,
  use: (capability: Capability) => Promise<number>,
): Promise<Readonly<Record<string, unknown>>> {
  for (let asked = 1; ; asked += 1) {
    const answer = await callback.post(path, request);
    const status = await use(capabilityOf(path, answer));
    if (status >= 200 && status < 300) return answer;
    if (status !== 403 || asked === capabilitiesMax) {
      throw new PhaseFailure(phaseExit.refused, `${path}: the store answered with status ${status}`);
    }
  }
}

function capabilityOf(path: string, answer: Readonly<Record<string, unknown>>): Capability {
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
