import type { ComponentChildren } from "preact";

/** What a state means to whoever looks: a shape and a colour for each, and always its word. */
export type Tone = "wait" | "run" | "good" | "bad" | "off" | "need";

const tones: Readonly<Record<string, Tone>> = {
  queued: "wait",
  pending: "wait",
  planned: "wait",
  held: "wait",
  running: "run",
  active: "run",
  released: "run",
  committing: "run",
  stopping: "run",
  catching: "run",
  connecting: "run",
  succeeded: "good",
  committed: "good",
  delivered: "good",
  live: "good",
  alive: "good",
  idle: "good",
  failed: "bad",
  dead: "bad",
  disconnected: "bad",
  waiting: "need",
  suspended: "need",
  due: "need",
};

export const toneOf = (state: string): Tone => tones[state] ?? "off";

/** One shape a tone, told apart without their colours. */
const shapes: Readonly<Record<Tone, ComponentChildren>> = {
  wait: <circle cx="6" cy="6" r="4" />,
  run: (
    <>
      <circle cx="6" cy="6" r="4.5" />
      <path class="fill" d="M4.6 3.6 8.6 6l-4 2.4z" />
    </>
  ),
  good: <path d="m1.8 6.4 2.9 2.9 5.6-6.4" />,
  bad: <path d="m2.4 2.4 7.2 7.2m0-7.2-7.2 7.2" />,
  need: <path d="M6 1.4v5.4M6 9.4v1.2" />,
  off: <path d="M2 6h8" />,
};

export function Shape({ tone }: { readonly tone: Tone }) {
  return (
    <svg class="shape" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
      {shapes[tone]}
    </svg>
  );
}

export function Status({
  state,
  word,
  tone = toneOf(state),
}: {
  readonly state: string;
  readonly word?: string | undefined;
  readonly tone?: Tone | undefined;
}) {
  return (
    <span class={`status ${tone}`} data-state={state}>
      <Shape tone={tone} />
      {word ?? state.replaceAll("_", " ")}
    </span>
  );
}
