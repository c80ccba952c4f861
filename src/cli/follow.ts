import { delay } from "../client/backoff.ts";
import { ApiError, type Client, CursorExpiredError } from "../client/client.ts";
import type { AttemptView, JobView, LogLine } from "../wire/job.ts";

/** A job with all that is shown of it. */
export interface JobPicture {
  readonly job: JobView;
  readonly attempts: readonly AttemptView[];
}

export interface Follower {
  picture(picture: JobPicture): Promise<void>;
  line(line: LogLine): Promise<void>;
  /** The server doesn't answer now. It is asked again. */
  lost(error: ApiError): Promise<void>;
}

const lostPatience = 30;
const againMs = { lost: 2000, watched: 10_000, unwatched: 2000, least: 150 };

export async function pictureOf(client: Client, id: string, signal?: AbortSignal): Promise<JobPicture> {
  const [job, attempts] = await Promise.all([
    client.getJob(id, { signal }),
    client.listAttempts(id, { signal }),
  ]);
  return { job, attempts };
}

/** Follow a job's state and its output until it is over and all of it was shown. */
export async function followJob(
  client: Client,
  id: string,
  follower: Follower,
  signal: AbortSignal,
): Promise<JobPicture> {
  const over = new AbortController();
  const stop = AbortSignal.any([signal, over.signal]);
  const bell = createBell();
  // A hint only: without it the picture is looked at more seldom, never wrongly.
  const watching = watchJob(client, id, bell, stop).catch(() => bell.silence());
  try {
    const showing = showPictures(client, id, follower, bell, stop);
    const reading = (async () => {
      for await (const line of client.logs(id, { follow: true, signal: stop })) await follower.line(line);
    })();
    const [picture] = await Promise.all([showing, reading]);
    return picture;
  } finally {
    over.abort(new Error("over"));
    await watching;
  }
}

async function showPictures(
  client: Client,
  id: string,
  follower: Follower,
  bell: Bell,
  signal: AbortSignal,
): Promise<JobPicture> {
  let lost = 0;
  for (;;) {
    try {
      const picture = await pictureOf(client, id, signal);
      lost = 0;
      await follower.picture(picture);
      if (picture.job.finished_at !== null) return picture;
      await bell.rung(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof ApiError && error.retryable)) throw error;
      lost += 1;
      if (lost > lostPatience) throw error;
      await follower.lost(error);
      await delay(againMs.lost, signal);
    }
  }
}

async function watchJob(client: Client, id: string, bell: Bell, signal: AbortSignal): Promise<void> {
  let { cursor: after } = await client.listJobs({ limit: 1, signal }).page();
  for (;;) {
    try {
      bell.ring();
      for await (const _ of client.watch({ after, job: id, signal })) bell.ring();
      return;
    } catch (error) {
      if (!(error instanceof CursorExpiredError) || error.cursor === null) throw error;
      after = error.cursor;
    }
  }
}

interface Bell {
  ring(): void;
  /** Nobody will ring any more. */
  silence(): void;
  /** Resolves when it was rung since the last time, or after a while anyway. */
  rung(signal: AbortSignal): Promise<void>;
}

function createBell(): Bell {
  let waiting = Promise.withResolvers<void>();
  let longest = againMs.watched;
  return {
    ring: () => waiting.resolve(),
    silence: () => {
      longest = againMs.unwatched;
      waiting.resolve();
    },
    async rung(signal) {
      const rested = new AbortController();
      const either = AbortSignal.any([signal, rested.signal]);
      await Promise.race([waiting.promise, delay(longest, either).catch(() => undefined)]);
      rested.abort();
      signal.throwIfAborted();
      // Several changes come at once when a phase ends; one look shows them all.
      await delay(againMs.least, signal);
      waiting = Promise.withResolvers<void>();
    },
  };
}
