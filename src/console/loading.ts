import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { ApiError, ChangeEvent } from "../client/client.ts";
import { failure, gaps, link, onChange } from "./live.ts";

export interface Loaded<T> {
  /** The last that was read; stays while it is read again. */
  readonly value: T | null;
  readonly error: ApiError | null;
  readonly reload: () => void;
}

/** However many changes come, something is read again no more often. */
const restMs = 150;

/**
 * Reads something, and again when a change concerns it. A change that comes while it is read has it read once
 * more afterwards, so what is shown is never older than the last change.
 */
export function useLoaded<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  concerns: (change: ChangeEvent) => boolean = () => false,
  rest = restMs,
): Loaded<T> {
  const [state, setState] = useState<{ key: string; value: T | null; error: ApiError | null }>({
    key,
    value: null,
    error: null,
  });
  const latest = useRef({ load, concerns });
  latest.current = { load, concerns };
  const again = useRef(() => {});

  useEffect(() => {
    const gone = new AbortController();
    let reading = false;
    let dirty = false;
    let failed = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    async function read() {
      if (reading) {
        dirty = true;
        return;
      }
      reading = true;
      dirty = false;
      try {
        const value = await latest.current.load(gone.signal);
        failed = false;
        if (!gone.signal.aborted) setState({ key, value, error: null });
      } catch (error) {
        failed = true;
        if (!gone.signal.aborted) {
          setState((before) => ({
            key,
            value: before.key === key ? before.value : null,
            error: failure(error),
          }));
        }
      }
      reading = false;
      if (dirty) soon();
    }
    const soon = () => {
      if (timer !== undefined || gone.signal.aborted) return;
      timer = setTimeout(() => {
        timer = undefined;
        void read();
      }, rest);
    };
    again.current = () => void read();
    const stopListening = onChange((change) => {
      if (latest.current.concerns(change)) soon();
    });
    const stopLink = link.subscribe(({ state }) => {
      if (failed && state === "live") soon();
    });
    // Also at once: the first look.
    const stopGaps = gaps.subscribe(() => void read());
    return () => {
      clearTimeout(timer);
      gone.abort();
      stopListening();
      stopLink();
      stopGaps();
    };
  }, [key]);

  const reload = useCallback(() => again.current(), []);
  return state.key === key
    ? { value: state.value, error: state.error, reload }
    : { value: null, error: null, reload };
}
