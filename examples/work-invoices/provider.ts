import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** A payment provider as they are: it fails before it charges, or charges and lets nobody know. */
export interface Provider {
  readonly url: string;
  /** What each key was charged, in cents: a key is charged once, however often it is asked. */
  readonly charged: ReadonlyMap<string, number>;
  readonly requests: () => number;
  close(): Promise<void>;
}

/** `fault` says what happens to the nth request. */
export async function startProvider(fault: (nth: number) => "refuse" | "silence" | null): Promise<Provider> {
  const charged = new Map<string, number>();
  let requests = 0;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      requests += 1;
      const how = fault(requests);
      if (how === "refuse") {
        response.writeHead(503).end();
        return;
      }
      const key = String(request.headers["idempotency-key"]);
      const { cents } = JSON.parse(Buffer.concat(chunks).toString("utf8")) as { readonly cents: number };
      if (!charged.has(key)) charged.set(key, cents);
      // It has charged, and the answer is lost on the way.
      if (how === "silence") request.socket.destroy();
      else
        response
          .writeHead(200, { "content-type": "application/json" })
          .end(JSON.stringify({ receipt: `r-${key}` }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    charged,
    requests: () => requests,
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
