import { open } from "node:fs/promises";
import { join } from "node:path";
import type { TenantId } from "../core/ids.ts";
import { assertOutsideTransition } from "../core/outside.ts";

export interface KeyReference {
  readonly name: string;
  readonly key: string;
}

/** The keys that a tenant's references name, in their order. Throws an error that names a key and never shows it. */
export type SigningKeys = (tenant: TenantId, references: readonly KeyReference[]) => Promise<Buffer[]>;

const keyBytesMin = 16;
const fileBytesMax = 4_096;
const partPattern = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}$/;

/**
 * Signing keys are files `<directory>/<tenant>/<name>/<key>`, read anew for each try, so that a changed file is a
 * changed key. A tenant has a folder of its own: nobody signs with the key of another.
 */
export function signingKeysIn(directory: string | null): SigningKeys {
  return (tenant, references) => {
    assertOutsideTransition("signing keys");
    return Promise.all(references.map((reference) => readKey(directory, tenant, reference)));
  };
}

async function readKey(directory: string | null, tenant: TenantId, reference: KeyReference): Promise<Buffer> {
  const what = `the signing key ${reference.name}/${reference.key}`;
  if (directory === null) throw new Error(`${what} can't be read: no folder of signing keys is configured`);
  const parts = [tenant, reference.name, reference.key];
  if (!parts.every((part) => partPattern.test(part))) throw new Error(`${what} has no valid name`);
  const text = await readStart(join(directory, ...parts)).catch((error: unknown) => {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
    throw new Error(`${what} can't be read (${code})`);
  });
  const key = keyBytes(text);
  if (key.length < keyBytesMin) throw new Error(`${what} is shorter than ${keyBytesMin} bytes`);
  if (text.length > fileBytesMax) throw new Error(`${what} is longer than ${fileBytesMax} bytes`);
  return key;
}

async function readStart(path: string): Promise<Buffer> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(fileBytesMax + 1));
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/** `whsec_` and base64, or the bytes of the file as they are, without the line break that editors leave. */
export function keyBytes(content: Buffer): Buffer {
  const text = content.toString("latin1").trimEnd();
  const [, encoded] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(text) ?? [];
  return encoded === undefined ? Buffer.from(text, "latin1") : Buffer.from(encoded, "base64");
}
