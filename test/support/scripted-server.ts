import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
  /** How many requests of this method and path there were before. */
  readonly earlier: number;
}

export interface ScriptedServer {
  readonly url: string;
  readonly seen: readonly Seen[];
}

/** Answers a request; nothing is sent for it that the script does not send. */
export type Script = (request: Seen, response: ServerResponse) => void | Promise<void>;

/** A real HTTP server on loopback that does what a test says, also what no good server would. */
export async function scriptedServer(
  t: { readonly after: (hook: () => Promise<void>) => void },
  script: Script,
): Promise<ScriptedServer> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    response.on("error", () => undefined);
    void (async () => {
      const { pathname: path, searchParams: query } = new URL(request.url ?? "/", "http://localhost");
      const method = request.method ?? "GET";
      const earlier = seen.filter((one) => one.method === method && one.path === path).length;
      const one = { method, path, query, headers: request.headers, body: await text(request), earlier };
      seen.push(one);
      await script(one, response);
    })().catch((error: unknown) =>
      response.destroy(error instanceof Error ? error : new Error(String(error))),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

export function sendProblem(
  response: ServerResponse,
  status: number,
  code: string,
  more: Readonly<Record<string, unknown>> = {},
  headers: Readonly<Record<string, string>> = {},
): void {
  const problem = { type: `urn:holdfast:error:${code}`, title: code, status, code, ...more };
  sendJson(response, status, problem, { "content-type": "application/problem+json", ...headers });
}
