import { createServer, type Server, type Socket } from "node:net";
import { type ControlRequest, readControlRequest, type Verdict } from "./control.ts";
import { toJson } from "./fields.ts";

const requestBytesMax = 4_096;
const requestMilliseconds = 5_000;
const connectionsMax = 256;
const farewellMilliseconds = 1_000;

/**
 * The supervisor's one ear: a line of JSON, a line back, over a socket in a folder that only our user can
 * enter. Requests are answered in one step each, in the order in which they arrive.
 */
export class ControlServer {
  readonly #path: string;
  readonly #uid: string;
  readonly #answer: (request: Exclude<ControlRequest, { op: "watch" }>) => Verdict;
  readonly #watchers = new Set<Socket>();
  readonly #server: Server;

  constructor(
    path: string,
    uid: string,
    answer: (request: Exclude<ControlRequest, { op: "watch" }>) => Verdict,
  ) {
    this.#path = path;
    this.#uid = uid;
    this.#answer = answer;
    this.#server = createServer((socket) => this.#serve(socket));
    this.#server.maxConnections = connectionsMax;
  }

  listen(): void {
    this.#server.listen(this.#path);
  }

  /** Wake whoever watches. */
  changed(): void {
    for (const watcher of this.#watchers) watcher.end('{"ok":true}\n');
    this.#watchers.clear();
  }

  /** The process ends when the last answer is out, or soon. */
  close(): void {
    this.changed();
    this.#server.close();
    setTimeout(() => process.exit(0), farewellMilliseconds).unref();
  }

  #serve(socket: Socket): void {
    let received = "";
    socket.setEncoding("utf8");
    socket.setTimeout(requestMilliseconds, () => socket.destroy());
    // The other side went away: nothing to tell it.
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#watchers.delete(socket));
    socket.on("data", (chunk: string) => {
      received += chunk;
      const end = received.indexOf("\n");
      if (end === -1 && received.length <= requestBytesMax) return;
      socket.removeAllListeners("data");
      socket.resume();
      this.#reply(socket, received.slice(0, Math.max(0, end)));
    });
  }

  #reply(socket: Socket, line: string): void {
    let answer: object;
    try {
      const request = readControlRequest(line);
      if (request.uid !== this.#uid) {
        answer = { ok: false, reason: "wrong_uid", message: "the object has another UID" };
      } else if (request.op === "watch") {
        socket.setTimeout(0);
        this.#watchers.add(socket);
        return;
      } else {
        answer = this.#answer(request);
      }
    } catch (error) {
      answer = { fault: error instanceof Error ? error.message : String(error) };
    }
    socket.end(`${toJson(answer)}\n`);
  }
}
