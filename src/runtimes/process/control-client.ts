import { connect } from "node:net";
import { type ControlRequest, readVerdict, type Verdict } from "./control.ts";
import { isCode } from "./durable.ts";
import { toJson } from "./fields.ts";

const answerBytesMax = 16 * 1024;

/** Nobody listens, or the supervisor ended before it answered: look at its files, then ask again. */
export class NoAnswer extends Error {
  override readonly name = "NoAnswer";
}

export async function ask(socket: string, request: ControlRequest, signal: AbortSignal): Promise<Verdict> {
  const line = await exchange(socket, `${toJson(request)}\n`, signal);
  return readVerdict(line);
}

function exchange(path: string, message: string, signal: AbortSignal): Promise<string> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    let received = "";
    const abort = () => socket.destroy(signal.reason instanceof Error ? signal.reason : new Error("aborted"));
    signal.addEventListener("abort", abort, { once: true });
    socket.setEncoding("utf8");
    socket.on("connect", () => socket.write(message));
    socket.on("data", (chunk: string) => {
      received += chunk;
      if (received.includes("\n") || received.length > answerBytesMax) socket.end();
    });
    socket.on("error", (error) => {
      const silent = isCode(error, "ENOENT", "ECONNREFUSED", "ECONNRESET", "EPIPE");
      reject(silent ? new NoAnswer(error.message) : error);
    });
    socket.on("close", () => {
      signal.removeEventListener("abort", abort);
      const end = received.indexOf("\n");
      if (end === -1) reject(new NoAnswer("the connection ended without an answer"));
      else resolve(received.slice(0, end));
    });
  });
}
