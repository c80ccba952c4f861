/**
 * The callback as a sandbox sees it (docs/reference/sandbox-contract.md): one call, tried until the server
 * decides. Runs inside sandboxes, so it imports nothing but Node.
 */
export interface PhaseCallback {
  post(path: string, body: unknown): Promise<Readonly<Record<string, unknown>>>;
  /** Run one exchange until it gives an answer that is not temporary, and return that. */
  exchange(send: (life: SignOfLife) => Promise<Response>): Promise<Response>;
}

/** One try of an exchange is aborted when there was none for a while: a peer that was suspended says nothing. */
export interface SignOfLife {
  readonly signal: AbortSignal;
  /** Something came or went. */
  readonly alive: () => void;
}

export interface PhaseCallbackOptions {
  readonly url: string;
  readonly token: string;
  /** How long temporary failures of one exchange are borne. */
  readonly retryForMs: number;
  /** How long one try may show no sign of life. */
  readonly silenceMs?: number;
  readonly wait: (ms: number) => Promise<void>;
  readonly monotonicMs: () => number;
}

export const phaseExit = {
  done: 0,
  failed: 1,
  usage: 2,
  refused: 3,
  stop: 4,
  gaveUp: 5,
  mismatch: 6,
} as const;

/** Ends the helper with this exit code and message. */
export class PhaseFailure extends Error {
  override readonly name = "PhaseFailure";
  readonly exit: (typeof phaseExit)[keyof typeof phaseExit];
  constructor(exit: PhaseFailure["exit"], message: string) {
    super(message);
    this.exit = exit;
  }
}

const backoffFirstMs = 200;
const backoffMaxMs = 10_000;
const retryAfterMaxMs = 30_000;
const defaultSilenceMs = 30_000;

export function phaseCallback(options: PhaseCallbackOptions): PhaseCallback {
  const { url, token, retryForMs, silenceMs = defaultSilenceMs, wait, monotonicMs } = options;

  async function exchange(send: (life: SignOfLife) => Promise<Response>): Promise<Response> {
    const giveUpAt = monotonicMs() + retryForMs;
    for (let tries = 1; ; tries += 1) {
      const outcome = await unlessSilent(silenceMs, send).catch((error: unknown) => asNetworkError(error));
      if (outcome instanceof Response && !isTemporary(outcome.status)) return outcome;
      const pause = pauseMs(tries, outcome);
      if (monotonicMs() + pause > giveUpAt) {
        const last = outcome instanceof Response ? `status ${outcome.status}` : outcome.message;
        throw new PhaseFailure(phaseExit.gaveUp, `gave up after ${tries} tries: ${last}`);
      }
      if (outcome instanceof Response) await outcome.body?.cancel();
      await wait(pause);
    }
  }

  return {
    exchange,
    async post(path, body) {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const response = await exchange(async ({ signal }) => {
        const answer = await fetch(url + path, {
          method: "POST",
          headers,
          body: JSON.stringify(body),
          // The token goes to the callback and nowhere else.
          redirect: "error",
          signal,
        });
        // An answer that breaks off is no answer: read it while it can still be tried again.
        const bytes = await answer.arrayBuffer();
        return new Response(bytes.byteLength === 0 ? null : bytes, {
          status: answer.status,
          headers: answer.headers,
        });
      });
      const text = await response.text();
      if (!response.ok) throw refusal(path, response.status, text);
      return asObject(path, text);
    },
  };
}

async function unlessSilent<T>(ms: number, send: (life: SignOfLife) => Promise<T>): Promise<T> {
  const silence = new AbortController();
  const timer = setTimeout(() => {
    silence.abort(new Error(`no sign of life for ${ms / 1000} s`));
  }, ms);
  try {
    return await send({ signal: silence.signal, alive: () => void timer.refresh() });
  } finally {
    clearTimeout(timer);
  }
}

function isTemporary(status: number): boolean {
  return status === 408 || status === 429 || status >= 500;
}

function pauseMs(tries: number, outcome: Response | Error): number {
  const asked =
    outcome instanceof Response ? Number(outcome.headers.get("retry-after") ?? Number.NaN) : Number.NaN;
  if (asked > 0) return Math.min(asked * 1000, retryAfterMaxMs);
  const full = Math.min(backoffFirstMs * 2 ** (tries - 1), backoffMaxMs);
  return full * (0.5 + Math.random() / 2);
}

/** What went wrong between here and there; a fault of this program is thrown on. */
function asNetworkError(error: unknown): Error {
  if (error instanceof PhaseFailure || !(error instanceof Error)) throw error;
  return error.cause instanceof Error ? error.cause : error;
}

function refusal(path: string, status: number, text: string): PhaseFailure {
  const stop = status === 401 || status === 403 || status === 409;
  let said = `status ${status}`;
  try {
    const { code, detail } = JSON.parse(text) as { code?: unknown; detail?: unknown };
    if (typeof code === "string") said += ` ${code}`;
    if (typeof detail === "string") said += `: ${detail}`;
  } catch {
    // Not a problem document: the status says it all.
  }
  return new PhaseFailure(stop ? phaseExit.stop : phaseExit.refused, `${path}: ${said}`);
}

function asObject(path: string, text: string): Readonly<Record<string, unknown>> {
  const value: unknown = text === "" ? {} : JSON.parse(text);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return { ...value };
  throw new PhaseFailure(phaseExit.refused, `${path}: the answer is not a JSON object`);
}
