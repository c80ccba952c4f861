import { once } from "node:events";
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";

/** One address for several processes, of which one serves at a time. While none does, it hangs up at once. */
export interface Relay {
  readonly origin: string;
  readonly point: (port: number | null) => void;
}

export async function openRelay(scope: { readonly after: (hook: () => void) => void }): Promise<Relay> {
  let target: number | null = null;
  const open = new Set<Socket>();
  const server = createServer((near) => {
    if (target === null) return near.destroy();
    const far = createConnection(target, "127.0.0.1");
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) {
      open.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        open.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  scope.after(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    point(port) {
      target = port;
    },
  };
}
