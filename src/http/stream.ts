import type { FastifyReply, FastifyRequest } from "fastify";
import { HoldfastError } from "../core/errors.ts";
import type { ProblemDocument } from "../wire/problem.ts";
import { type Gateway, principalOf } from "./gateway.ts";
import { asHoldfastError, problemOf } from "./problem.ts";

/** A response that goes on until one of the two sides ends it. */
export interface LiveResponse {
  /** Aborted when the stream has ended, for whatever reason. */
  readonly signal: AbortSignal;
  /** Waits until the reader has room. A reader that takes nothing for too long is cut off. */
  write(text: string): Promise<void>;
  /** Without waiting: a reader for whom too much waits already is cut off, its last cursor intact (G7). */
  push(text: string): void;
  end(): void;
  /** Says what went wrong in the stream itself, where nothing else can be said any more, and ends it. */
  fail(error: unknown): void;
}

/**
 * Takes the response over from the framework. Everything that can still be refused has to be refused before.
 * Throws `too_many_streams`.
 */
export function openStream(
  gateway: Gateway,
  request: FastifyRequest,
  reply: FastifyReply,
  options: {
    readonly contentType: string;
    readonly onQuiet: () => string;
    readonly onRefused: (problem: ProblemDocument) => string;
  },
): LiveResponse {
  const { limits, streams } = gateway;
  const response = reply.raw;
  const ended = new AbortController();
  let written = false;

  const end = () => {
    if (!response.writableEnded) response.end();
    finish();
  };
  const fail = (fault: unknown) => {
    const error = asHoldfastError(fault);
    if (error.code === "internal") request.log.error({ err: fault }, "stream failed");
    push(options.onRefused(problemOf(error, request.id)));
    end();
  };
  const expire = () => fail(new HoldfastError("unauthenticated", "the token has expired or was revoked"));
  const cutOff = (reason: string) => {
    request.log.info({ reason }, "stream cut off");
    response.destroy();
    finish();
  };
  const leave = streams.enter({ principal: principalOf(request), end, expire });
  const quiet = setInterval(() => {
    if (!written) push(options.onQuiet());
    written = false;
  }, limits.heartbeatMs);

  function finish(): void {
    clearInterval(quiet);
    leave();
    ended.abort();
  }

  function send(text: string): boolean {
    written = true;
    return response.write(text);
  }

  function push(text: string): void {
    if (ended.signal.aborted) return;
    if (response.writableLength > limits.streamBufferBytes) cutOff("the reader is too slow");
    else send(text);
  }

  reply.hijack();
  response.once("close", finish);
  response.on("error", finish);
  response.writeHead(200, { ...headersOf(reply), "content-type": options.contentType });
  // The client learns at once that it was let in.
  response.flushHeaders();

  return {
    signal: ended.signal,
    push,
    end,
    fail,
    async write(text) {
      if (ended.signal.aborted || send(text)) return;
      const drained = await roomFor(response, ended.signal, limits.streamStallMs);
      if (!drained && !ended.signal.aborted) cutOff("the reader took nothing for too long");
    },
  };
}

/** What the hooks have set so far. */
function headersOf(reply: FastifyReply): Record<string, string> {
  return Object.fromEntries(
    Object.entries(reply.getHeaders()).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, String(value)]],
    ),
  );
}

function roomFor(response: NodeJS.WritableStream, signal: AbortSignal, stallMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (drained: boolean) => () => {
      clearTimeout(timer);
      response.off("drain", onDrain);
      signal.removeEventListener("abort", onAbort);
      resolve(drained);
    };
    const onDrain = settle(true);
    const onAbort = settle(false);
    const timer = setTimeout(onAbort, stallMs);
    response.once("drain", onDrain);
    signal.addEventListener("abort", onAbort);
  });
}
