/**
 * `npm run bench:gateway`: how fast jobs are admitted through HTTP, durably, against the same statements sent by
 * a bare loop with as many clients, as pgbench would. Both in one run on one store, in turns; medians and their
 * ratio are printed. SECONDS and ROUNDS may be given.
 */
import { spawn } from "node:child_process";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { createPrincipal, createTenant, createToken } from "../src/core/tenant.store.ts";
import { hashToken } from "../src/core/tenant.ts";
import { seconds as secondsOf } from "../src/core/time.ts";
import { startPostgres } from "../src/dev/postgres/server.ts";
import { prepareStore } from "../src/dev/store.ts";
import { openGateway } from "../src/main/gateway.ts";
import { openFoundation } from "../src/main/process.ts";
import { noBlobs } from "../test/support/gateway.ts";
import { recorded } from "./gateway/recording.ts";

const [seconds = 4, rounds = 3] = process.argv.slice(2).map(Number);
const clients = 16;
const tenantsCount = 16;
const installation = "bench";

interface Load {
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
}

const directory = await mkdtemp(join(tmpdir(), "holdfast-bench-"));
const postgres = await startPostgres({ directory, throwaway: true, settings: { max_connections: "100" } });
try {
  const settings = await prepareStore(postgres.connection, installation, () => undefined);
  const log = pino({ level: "silent" });
  const foundation = await openFoundation({
    settings,
    process: "bench",
    release: "bench",
    installation,
    kinds: [],
    log,
  });
  const gateway = await openGateway(foundation, {
    host: "127.0.0.1",
    port: 0,
    release: "bench",
    blobs: noBlobs,
    queueMax: 1_000_000,
    log,
    limits: { rate: null },
  });

  /** New tenants for each measurement: a queue that has grown is not what is compared. */
  let made = 0;
  const callers = async (count = tenantsCount) => {
    const all: { tenant: string; principal: string; hash: string; token: string }[] = [];
    for (let n = 0; n < count; n += 1) {
      const tenant = await createTenant(foundation.db, `bench-${++made}`);
      const principal = await createPrincipal(foundation.db, { tenant, name: "ci" });
      const grant = { tenant, principal, scopes: ["jobs:write"], lifetime: secondsOf(3600) } as const;
      const { token } = await createToken(foundation.db, grant);
      all.push({ tenant, principal, hash: hashToken(token).toString("hex"), token });
    }
    return all;
  };

  const [sample] = await callers(1);
  if (sample === undefined) throw new Error("nobody asks");
  const key = "the-recorded-key";
  const submit = (idempotencyKey: string) =>
    fetch(`${gateway.address}/v1/jobs`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${sample.token}`,
        "content-type": "application/json",
        "idempotency-key": idempotencyKey,
      },
      body: JSON.stringify({
        apiVersion: "holdfast/v1",
        kind: "Job",
        metadata: { name: "bench" },
        spec: { phases: [{ name: "compile", kind: "compile", command: ["true"] }] },
      }),
    }).then(async (response) => (await response.json()) as { readonly id: string });
  await submit("warm");
  const statements = await recorded(async () => void (await submit(key)));
  const commands = statements.find(({ name }) => name === "command.insertCommand")?.values ?? [];
  const job = statements.find(({ name }) => name === "job.insertJob")?.values ?? [];
  const uuids = [...commands, ...job].filter(
    (value): value is string => typeof value === "string" && /^[0-9a-f-]{36}$/.test(value),
  );
  const ids = [...new Set(uuids)].filter((id) => id !== sample.principal);

  const measure = {
    http: async (): Promise<Load> => {
      const tokens = (await callers()).map(({ token }) => token);
      return child("http-load.ts", { url: gateway.address, tokens, clients, seconds });
    },
    bare: async (): Promise<Load> =>
      child("bare-load.ts", {
        connection: { ...postgres.connection, database: settings.database },
        statements,
        fresh: { ids, key },
        owner: sample,
        owners: await callers(),
        clients,
        seconds,
      }),
  };
  const results: Record<"http" | "bare", Load[]> = { http: [], bare: [] };
  for (let round = 0; round < rounds; round += 1) {
    for (const kind of ["bare", "http"] as const) results[kind].push(await measure[kind]());
  }
  const middle = (loads: readonly Load[]) =>
    loads.toSorted((a, b) => a.perSecond - b.perSecond)[Math.floor(loads.length / 2)];
  const [http, bare] = [middle(results.http), middle(results.bare)];
  const line = (name: string, load: Load | undefined) =>
    console.log(
      `${name.padEnd(34)}${load?.perSecond.toFixed(0).padStart(6)}/s  p50 ${load?.p50.toFixed(1)} ms  p99 ${load?.p99.toFixed(1)} ms`,
    );
  console.log(
    `${clients} clients, ${rounds} rounds of ${seconds} s, ${statements.length} statements an admission`,
  );
  line("admission through HTTP", http);
  line("the same statements, bare", bare);
  console.log(`ratio ${((http?.perSecond ?? 0) / (bare?.perSecond ?? 1)).toFixed(2)}`);
  await gateway.close();
  await foundation.close();
} finally {
  await postgres.stop();
}

function child(file: string, options: object): Promise<Load> {
  const path = join(import.meta.dirname, "gateway", file);
  const started = spawn(process.execPath, [path, JSON.stringify(options)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  started.stdout.setEncoding("utf8").on("data", (part: string) => (text += part));
  return new Promise((resolve, reject) => {
    started.once("close", (code) => {
      if (code === 0) resolve(JSON.parse(text) as Load);
      else reject(new Error(`${file} ended with ${code}`));
    });
  });
}
