import { once } from "node:events";
import { createServer, request } from "node:http";
import type { AddressInfo, Socket } from "node:net";

/** The network between a browser and the server, which a test can cut. Addresses stay as they are. */
export interface ForwardProxy {
  readonly address: string;
  /** Everything that is open breaks, and nothing new comes through until it is mended. */
  readonly cut: () => void;
  readonly mend: () => void;
}

export async function openForwardProxy(scope: {
  readonly after: (hook: () => void) => void;
}): Promise<ForwardProxy> {
  let broken = false;
  const sockets = new Set<Socket>();
  const server = createServer((near, answer) => {
    if (broken) {
      near.socket.destroy();
      return;
    }
    const far = request(new URL(near.url ?? ""), { method: near.method, headers: near.headers });
    far.once("response", (response) => {
      answer.writeHead(response.statusCode ?? 502, response.headers);
      response.pipe(answer);
    });
    far.once("socket", (socket) => sockets.add(socket));
    far.on("error", () => answer.destroy());
    answer.on("close", () => far.destroy());
    near.pipe(far);
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const breakAll = () => {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
  };
  scope.after(() => {
    breakAll();
    server.close();
  });
  return {
    address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut() {
      broken = true;
      breakAll();
    },
    mend() {
      broken = false;
    },
  };
}
