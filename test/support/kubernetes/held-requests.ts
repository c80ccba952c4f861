import type { SeenRequest } from "./api-call.ts";

/** A request is held up when it has arrived, or when it has taken effect and is not answered yet. */
export type Standing = "received" | "done";

export interface HeldRequest {
  /** It stands there. */
  readonly reached: Promise<SeenRequest>;
  /** Let it go on, as a network does that was slow. Gives the status of its answer, heard or not. */
  readonly go: () => Promise<number>;
  /** It never arrives, or its answer never does. Before it came: none is held up. */
  readonly drop: () => void;
}

interface Hold {
  readonly matches: (request: SeenRequest) => boolean;
  readonly at: Standing;
  left: number;
  readonly came: (request: SeenRequest) => void;
  readonly passes: Promise<boolean>;
}

/** Requests that a test stops where it wants to look, kill or suspend. */
export class HeldRequests {
  readonly #holds = new Set<Hold>();
  readonly #answers = new Map<SeenRequest, (status: number) => void>();

  /** The `nth` that matches. */
  hold(at: Standing, nth: number, matches: (request: SeenRequest) => boolean): HeldRequest {
    const reached = Promise.withResolvers<SeenRequest>();
    const passes = Promise.withResolvers<boolean>();
    const answer = Promise.withResolvers<number>();
    const hold: Hold = {
      matches,
      at,
      left: nth,
      passes: passes.promise,
      came: (request) => {
        this.#answers.set(request, answer.resolve);
        reached.resolve(request);
      },
    };
    this.#holds.add(hold);
    return {
      reached: reached.promise,
      go: () => {
        passes.resolve(true);
        return answer.promise;
      },
      drop: () => {
        this.#holds.delete(hold);
        passes.resolve(false);
      },
    };
  }

  /** False: it goes no further. */
  async pass(request: SeenRequest, at: Standing): Promise<boolean> {
    for (const hold of this.#holds) {
      if (hold.at !== at || hold.left === 0 || !hold.matches(request)) continue;
      hold.left -= 1;
      if (hold.left > 0) continue;
      this.#holds.delete(hold);
      hold.came(request);
      return hold.passes;
    }
    return true;
  }

  answered(request: SeenRequest, status: number): void {
    request.status = status;
    this.#answers.get(request)?.(status);
    this.#answers.delete(request);
  }
}
