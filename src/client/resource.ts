import type { CallOptions, Request, Transport } from "./transport.ts";

export interface Mutation extends CallOptions {
  /** Sending the same request with the same key again does it once (G3). Made up when left out. */
  readonly idempotencyKey?: string | undefined;
}

/** A change of what the caller has seen: the ETag of that, from `etagOf`. */
export interface Conditional extends Mutation {
  readonly ifMatch?: string | undefined;
}

/** Anything that has versions. */
export interface Versioned {
  readonly resource_version: string;
}

/** Sends what answers with a resource, and remembers the ETag that it came with. */
export interface Resources {
  readonly one: <T extends Versioned>(request: Request & Conditional) => Promise<T>;
  readonly etagOf: (resource: Versioned) => string;
}

export function resources(transport: Transport): Resources {
  const etags = new WeakMap<Versioned, string>();
  return {
    async one<T extends Versioned>({ idempotencyKey, ifMatch, ...request }: Request & Conditional) {
      const headers = {
        ...request.headers,
        ...(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }),
        ...(ifMatch === undefined ? {} : { "if-match": ifMatch }),
      };
      const answer = await transport.json<T>({ ...request, headers });
      etags.set(answer.value, answer.headers.get("etag") ?? etagFrom(answer.value));
      return answer.value;
    },
    etagOf: (resource) => etags.get(resource) ?? etagFrom(resource),
  };
}

const etagFrom = ({ resource_version }: Versioned): string => `"${resource_version}"`;
