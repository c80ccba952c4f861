import { mkdtemp, rm } from "node:fs/promises";
import { createConnection, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Transform } from "node:stream";
import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";

/** Stands between a process and PostgreSQL: counts what is asked, delays, breaks, and lets connections hang half open. */
export interface Proxy {
  readonly settings: ConnectionSettings;
  /** Queries so far: simple ones and executions of the extended protocol. */
  readonly queries: () => number;
  /** The connections that are open now pass nothing on any more, and nobody is told. New ones work. */
  readonly freeze: () => void;
  /** What the server says next on any connection that is open now is lost, and the connection with it. */
  readonly swallow: () => void;
  /** Breaks the connections that are open now, in the middle of whatever they say. */
  readonly drop: () => void;
  /** What the server says arrives so much later from now on. */
  readonly delay: (milliseconds: number) => void;
  /** Where new connections lead from now on, as when an address is given to another server. */
  readonly move: (to: Pick<ConnectionSettings, "host" | "port">) => void;
  /** Whether new connections are refused from now on. */
  readonly refuse: (refused: boolean) => void;
}

export async function openProxy(
  scope: { readonly after: (hook: () => unknown) => void },
  settings: ConnectionSettings,
): Promise<Proxy> {
  const directory = await mkdtemp(join(tmpdir(), "holdfast-proxy-"));
  let upstream = addressOf(settings);
  const open = new Set<{ readonly near: Socket; readonly far: Socket }>();
  let queries = 0;
  let refusing = false;
  let delayMs = 0;
  const server: Server = createServer((near) => {
    if (refusing) return near.destroy();
    const far = createConnection(upstream);
    const pair = { near, far };
    open.add(pair);
    const count = frameCounter((type) => {
      if (type === "Q" || type === "E") queries += 1;
    });
    near.on("data", count);
    near.pipe(far);
    const late = new Transform({
      transform(chunk, _encoding, done) {
        setTimeout(() => done(null, chunk), delayMs);
      },
    });
    far.pipe(late).pipe(near);
    for (const socket of [near, far]) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        open.delete(pair);
        near.destroy();
        far.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(join(directory, `.s.PGSQL.${settings.port}`), resolve));
  scope.after(async () => {
    for (const { near, far } of open) {
      near.destroy();
      far.destroy();
    }
    await new Promise<void>((resolve) => server.close(() => resolve()));
    await rm(directory, { recursive: true, force: true });
  });
  return {
    settings: { ...settings, host: directory },
    queries: () => queries,
    swallow() {
      for (const { near, far } of open) {
        far.unpipe();
        far.once("data", () => {
          near.destroy();
          far.destroy();
        });
        far.resume();
      }
    },
    drop() {
      for (const { near, far } of open) {
        near.destroy();
        far.destroy();
      }
    },
    delay(milliseconds) {
      delayMs = milliseconds;
    },
    move(to) {
      upstream = addressOf(to);
    },
    refuse(refused) {
      refusing = refused;
    },
    freeze() {
      for (const { near, far } of open) {
        near.unpipe(far);
        far.unpipe();
        near.pause();
        far.pause();
      }
    },
  };
}

function addressOf({ host, port }: Pick<ConnectionSettings, "host" | "port">) {
  return host.startsWith("/") ? { path: join(host, `.s.PGSQL.${port}`) } : { host, port };
}

/** Reads the client's side of the protocol: after the untyped startup message, type and length of each. */
function frameCounter(onFrame: (type: string) => void): (chunk: Buffer) => void {
  let rest = Buffer.alloc(0);
  let started = false;
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    for (;;) {
      const head = started ? 1 : 0;
      if (rest.length < head + 4) return;
      const end = head + rest.readInt32BE(head);
      if (rest.length < end) return;
      if (started) onFrame(String.fromCharCode(rest[0] ?? 0));
      started = true;
      rest = rest.subarray(end);
    }
  };
}
