import type { ApiError } from "../client/client.ts";
import type { ArtifactView } from "../wire/job.ts";
import type { CommandContext } from "./context.ts";
import type { Follower, JobPicture } from "./follow.ts";
import {
  currentAttempt,
  phaseMark,
  phaseTime,
  phaseWord,
  progressWords,
  resultLines,
  stateColor,
  stateWords,
} from "./job-words.ts";
import { createScreen, fitted } from "./screen.ts";
import { elapsed } from "./time-text.ts";
import { visible } from "./visible.ts";

/** Shows a job while it is followed, and how it ended. */
export interface Presenter extends Follower {
  result(picture: JobPicture, artifacts: readonly ArtifactView[]): Promise<void>;
  /** Stop drawing: whatever is printed next stands alone. */
  close(): Promise<void>;
}

/** JSON lines, each with its `type`. */
export function jsonPresenter({ terminal }: CommandContext): Presenter {
  const emit = (type: string, more: object) => terminal.out(`${JSON.stringify({ type, ...more })}\n`);
  return {
    picture: ({ job, attempts }) => emit("job", { job, attempts }),
    line: (line) => emit("log", { line }),
    lost: ({ code, detail }) => emit("lost", { code, detail }),
    result: ({ job, attempts }, artifacts) => emit("result", { job, attempts, artifacts }),
    close: () => Promise.resolve(),
  };
}

/** Plain lines, for files, pipes and terminals that can't be redrawn. */
export function plainPresenter({ terminal }: CommandContext): Presenter {
  const told = new Set<string>();
  const tell = async (key: string, text: string) => {
    if (told.has(key)) return;
    told.add(key);
    await terminal.out(`${text}\n`);
  };
  return {
    async picture({ job, attempts }) {
      await tell("id", `job ${job.id} ${visible(job.name)}`);
      if (attempts.length === 0) await tell("queued", "waiting for a slot");
      for (const { attempt, phases, failure } of attempts) {
        for (const phase of phases) {
          if (phase.state === "pending") continue;
          const word = phaseWord(phase);
          const time = phase.finished_at === null ? "" : phaseTime(phase, 0);
          const after = time === "" ? "" : ` after ${time}`;
          await tell(
            `${attempt} ${phase.name} ${word}`,
            `attempt ${attempt} phase ${visible(phase.name)} ${word}${after}`,
          );
        }
        if (failure !== null) {
          await tell(`${attempt} failure`, `attempt ${attempt} failed: ${visible(failure.message)}`);
        }
      }
    },
    line: (line) => terminal.out(`${visible(line.phase)} | ${terminal.foreign(line.text)}\n`),
    lost: ({ detail }) => terminal.err(`${visible(detail)}; trying again\n`),
    result: (picture, artifacts) =>
      terminal.out(
        resultLines(picture, artifacts)
          .map((line) => `${line}\n`)
          .join(""),
      ),
    close: () => Promise.resolve(),
  };
}

/** Log lines scroll by above the phases, which are redrawn in place. */
export function livePresenter({ terminal, now }: CommandContext): Presenter {
  const { colors } = terminal;
  const screen = createScreen(terminal);
  let picture: JobPicture | undefined;
  let lost: ApiError | undefined;
  const redraw = () =>
    screen.status(picture === undefined ? [] : statusLines(picture, lost, terminal.columns, now(), colors));
  // Only the times of what runs change by themselves.
  const clock = setInterval(() => void redraw(), 1000);
  clock.unref();
  return {
    async picture(next) {
      picture = next;
      lost = undefined;
      await redraw();
    },
    line: ({ phase, stream, text }) => {
      const paint = stream === "system" ? colors.yellow : (plain: string) => plain;
      return screen.print(`${colors.dim(`${visible(phase)} │`)} ${paint(visible(text))}`);
    },
    async lost(error) {
      lost = error;
      await redraw();
    },
    async result(final, artifacts) {
      await this.close();
      const [first = "", ...rest] = resultLines(final, artifacts);
      await terminal.out(
        [stateColor(final.job.state, colors)(first), ...rest].map((line) => `${line}\n`).join(""),
      );
    },
    async close() {
      clearInterval(clock);
      await screen.clear();
    },
  };
}

function statusLines(
  { job, attempts }: JobPicture,
  lost: ApiError | undefined,
  columns: number,
  now: number,
  colors: CommandContext["terminal"]["colors"],
): string[] {
  const attempt = currentAttempt(attempts);
  const facts = [`${visible(job.name)} ${job.id} ${stateWords(job)}`];
  if (attempt === undefined) facts.push("waiting for a slot");
  else facts.push(`attempt ${attempt.attempt}`, elapsed(now - Date.parse(attempt.started_at)));
  const lines = [colors.bold(fitted(facts.join(" · "), columns))];
  for (const phase of attempt?.phases ?? []) {
    const words = [
      phaseMark(phaseWord(phase)),
      visible(phase.name),
      phaseTime(phase, now),
      progressWords(phase),
    ];
    const text = fitted(`  ${words.filter((word) => word !== "").join("  ")}`, columns);
    lines.push(stateColor(phaseWord(phase), colors)(text));
  }
  if (lost !== undefined) {
    lines.push(colors.yellow(fitted(`${visible(lost.detail)}; trying again`, columns)));
  }
  return lines;
}
