import { readFileSync } from "node:fs";

/** One recorded exchange with a 1.36 API server. */
export interface Exchange {
  readonly note?: string;
  readonly request: {
    readonly method: string;
    readonly path: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly body?: unknown;
  };
  readonly response: {
    readonly status: number;
    readonly headers: Readonly<Record<string, string>>;
    readonly body?: unknown;
    readonly stream?: readonly { readonly line: { readonly type: string; readonly object: unknown } }[];
  };
}

/** A change of a pod that a watch showed. */
export interface Sighting {
  readonly at_ms: number;
  readonly type: string;
  readonly object: {
    readonly metadata: Readonly<Record<string, unknown>>;
    readonly spec: Readonly<Record<string, unknown>>;
    readonly status?: Readonly<Record<string, unknown>>;
  };
}

export interface Trace {
  readonly about: string;
  readonly exchanges?: readonly Exchange[];
  readonly watch?: readonly Sighting[];
  readonly pods?: readonly (Sighting & { readonly name?: string })[];
}

export function readTrace(name: string): Trace {
  const path = new URL(`../../fixtures/kubernetes/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")) as Trace;
}
