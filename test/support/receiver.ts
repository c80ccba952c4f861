import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A request that a destination heard, whole. */
export interface Heard {
  readonly id: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
  /** The ordinal of the reply in it. */
  readonly ordinal: number;
}

export type Answer = (heard: Heard, response: ServerResponse, nth: number) => void | Promise<void>;

/** A destination over real HTTP. It answers 204, unless it is told otherwise. */
export interface Receiver {
  readonly url: string;
  readonly heard: readonly Heard[];
  /** Under way at this moment, and at most at once. */
  readonly open: () => { readonly now: number; readonly most: number };
  answer(how: Answer): void;
  close(): Promise<void>;
}

export async function openReceiver(scope: {
  readonly after: (hook: () => Promise<void>) => void;
}): Promise<Receiver> {
  const heard: Heard[] = [];
  let now = 0;
  let most = 0;
  let answer: Answer = (_heard, response) => void response.writeHead(204).end();
  const server = createServer((request, response) => {
    now += 1;
    most = Math.max(most, now);
    response.once("close", () => {
      now -= 1;
    });
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("error", () => undefined);
    request.once("end", () => {
      const body = Buffer.concat(chunks).toString();
      const { data } = JSON.parse(body) as { data: { ordinal: number } };
      const id = String(request.headers["webhook-id"]);
      const one = { id, path: request.url ?? "", headers: request.headers, body, ordinal: data.ordinal };
      heard.push(one);
      const nth = heard.filter((other) => other.id === id).length;
      void answer(one, response, nth);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  scope.after(close);
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    heard,
    open: () => ({ now, most }),
    answer(how) {
      answer = how;
    },
    close,
  };
}
