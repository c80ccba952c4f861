import { formatInstant, instant, seconds } from "../../src/core/time.ts";
import type { WorkApi } from "./work-api.ts";

/** Work at every point of its life: what ended in each way, what was lost, proven, late, and what is under way. */
export async function liveThroughWork(api: WorkApi): Promise<void> {
  const { clock, submit, permit, done, lose, view } = api;
  const failed = { type: "failed", code: "declined", message: "no", final: false } as const;
  const proof = (verdict: string) => ({ body: { verdict, note: "asked" } });
  await submit();
  await done(await permit(), { type: "succeeded", result: '"done"' });
  await submit();
  await done(await permit(), { ...failed, final: true });
  await view(await submit({ queue: "mail" }), "cancel");
  const stopping = await submit();
  const stopped = await permit();
  await view(stopping, "cancel");
  await done(stopped, { type: "succeeded", result: "" });
  // One that was lost, whose worker came late, and that turned out to have been done.
  const late = await submit({ deadline: formatInstant(instant(clock.now() + seconds(20))) });
  const gone = await permit();
  await lose();
  await done(gone, { type: "succeeded", result: "" });
  await view(late, "resolve", proof("applied"));
  // Nobody knows of this one, and its admission has closed.
  await submit({ queue: "default" });
  await permit();
  await lose();
  await clock.advance(seconds(290));
  await view(await submit({ queue: "mail" }), "suspend");
  await submit({ queue: "mail" });
  // One that was lost, was not done, and is done again.
  const again = await submit();
  await permit();
  await lose();
  await view(again, "resolve", proof("not_applied"));
  await view(again, "requeue");
  await clock.advance(seconds(30));
  await done(await permit(), failed);
  await submit();
  await permit();
}
