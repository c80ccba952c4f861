import type { ServerResponse } from "node:http";
import type { LocalContainer } from "./local-container.ts";
import type { PodObject } from "./pod-object.ts";
import { badRequest, type Cause, forbiddenField, invalidValue, StatusError } from "./status.ts";

/** `GET …/log`, as API server and kubelet answer it together. */
export function streamLog(
  pod: PodObject,
  container: LocalContainer | null,
  query: URLSearchParams,
  response: ServerResponse,
): void {
  const { name } = pod.metadata;
  const named = query.get("container");
  const known = pod.spec.containers.map((item) => item.name);
  if (named !== null && !known.includes(named))
    throw badRequest(`container ${named} is not valid for pod ${name}`);
  checkOptions(name, query);
  if (pod.spec.nodeName === undefined) {
    response.writeHead(204).end();
    return;
  }
  const state = pod.status.containerStatuses?.[0]?.state ?? {};
  if (container === null || state.waiting !== undefined) throw noContainer(pod, known[0] ?? "", state);
  response.writeHead(200, { "content-type": "text/plain", "cache-control": "no-cache, private" });
  response.flushHeaders();
  if (container.log.lost !== null) {
    response.end(container.log.lost);
    return;
  }
  copyLog(container, query, response);
}

function copyLog(container: LocalContainer, query: URLSearchParams, response: ServerResponse): void {
  const { log } = container;
  const since = sinceOf(query);
  const timestamps = query.get("timestamps") === "true";
  const follow = query.get("follow") === "true";
  let left = Number(query.get("limitBytes") ?? Number.POSITIVE_INFINITY);
  let at = 0;
  const copy = () => {
    for (const text of log.read(at, since, timestamps)) {
      const part = text.subarray(0, Math.min(left, text.length));
      left -= part.length;
      if (part.length > 0) response.write(part);
    }
    at = log.length;
    if (follow && log.open && left > 0) return;
    stop();
    response.end();
  };
  const stop = log.onChange(copy);
  response.once("close", stop);
  copy();
}

function sinceOf(query: URLSearchParams): string | null {
  const text = query.get("sinceTime");
  if (text === null) return null;
  const at = Date.parse(text);
  if (Number.isNaN(at)) {
    throw badRequest(
      `parsing time "${text}" as "2006-01-02T15:04:05Z07:00": cannot parse "${text}" as "2006"`,
    );
  }
  return `${new Date(Math.floor(at / 1000) * 1000).toISOString().slice(0, 19)}.000000000Z`;
}

function checkOptions(name: string, query: URLSearchParams): void {
  sinceOf(query);
  const causes: Cause[] = [];
  const tail = query.get("tailLines");
  const limit = query.get("limitBytes");
  if (query.has("sinceTime") && query.has("sinceSeconds")) {
    causes.push(forbiddenField("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
  }
  if (tail !== null && Number(tail) < 0) {
    causes.push(invalidValue("tailLines", Number(tail), "must be greater than or equal to 0"));
  }
  if (limit !== null && Number(limit) <= 0) {
    causes.push(invalidValue("limitBytes", Number(limit), "must be greater than 0"));
  }
  if (query.has("stream")) causes.push(forbiddenField("stream", "may not be specified"));
  const [cause] = causes;
  if (cause === undefined) return;
  const message = `PodLogOptions "${name}" is invalid: ${cause.field}: ${cause.message}`;
  throw new StatusError(422, "Invalid", message, { name, kind: "PodLogOptions", causes: [cause] });
}

function noContainer(pod: PodObject, container: string, state: Record<string, unknown>): StatusError {
  const { waiting, terminated } = state as { waiting?: { reason: string }; terminated?: object };
  const where = `container "${container}" in pod "${pod.metadata.name}"`;
  if (terminated !== undefined) return badRequest(`${where} is terminated`);
  return badRequest(`${where} is waiting to start: ${waiting?.reason ?? "ContainerCreating"}`);
}
