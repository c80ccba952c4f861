import { readFileSync, unlinkSync } from "node:fs";
import { basename, join } from "node:path";
import { createSync, isCode } from "./durable.ts";
import { toJson } from "./fields.ts";
import { identify } from "./identity.ts";
import { files, socketPath } from "./layout.ts";
import { type ClaimRecord, readPrivateEnv, readRequest } from "./records.ts";
import { Supervision } from "./supervision.ts";

/**
 * The process that holds one sandbox, runs its command at most once and records how it ended:
 * `node supervisor.ts FOLDER`. It lives in a session of its own and needs no controller. Whoever finds a
 * folder without a supervisor may start one: only the first to claim it goes on.
 */
async function main(path: string): Promise<void> {
  process.umask(0o022);
  const request = readRequest(readFileSync(join(path, files.request), "utf8"));
  if (request.uid !== basename(path)) throw new Error("the folder holds another object");
  const privateEnv = readPrivateEnv(readIfThere(join(path, files.private)) ?? '{"env":{}}');
  const identity = await identify(process.pid);
  if (identity === null) throw new Error("this process can't find itself in the process table");

  const socket = socketPath(request.settings.socketDirectory, request.uid);
  const claim: ClaimRecord = { kind: "supervisor", identity, socket };
  if (!createSync(join(path, files.claim), toJson(claim))) return;
  removeIfThere(join(path, files.private));
  new Supervision(path, request, privateEnv, socket).begin();
}

function readIfThere(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    // Another supervisor has read and removed it, so the claim is taken too.
    if (isCode(error, "ENOENT")) return null;
    throw error;
  }
}

function removeIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (!isCode(error, "ENOENT")) throw error;
  }
}

await main(process.argv[2] ?? "");
