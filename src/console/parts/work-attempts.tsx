import type { WorkDetail } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { lasting } from "../words.ts";
import { Section } from "./page.tsx";
import { Status, type Tone } from "./status.tsx";
import { When } from "./when.tsx";

type Logged = WorkDetail["attempt_log"][number];
type Slot = NonNullable<WorkDetail["plan"]>["slots"][number];

const tones: Readonly<Record<string, Tone>> = {
  running: "run",
  succeeded: "good",
  failed: "bad",
  unknown: "need",
  returned: "off",
  not_used: "off",
};

/** What was planned beside what happened, an attempt a row. */
export function WorkAttempts({ item }: { readonly item: WorkDetail }) {
  const slots = new Map((item.plan?.slots ?? []).map((slot) => [slot.attempt, slot]));
  const logged = Map.groupBy(item.attempt_log, ({ attempt }) => attempt);
  const numbers = [...new Set([...slots.keys(), ...logged.keys()])].sort((a, b) => a - b);
  if (numbers.length === 0) {
    return (
      <Section title="Attempts">
        <p class="muted">No attempt has begun.</p>
      </Section>
    );
  }
  return (
    <Section
      title={item.plan === null ? "Attempts" : "Attempts: planned and happened"}
      beside={item.plan === null ? null : <span class="muted small">plan {visible(item.plan.version)}</span>}
    >
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            {item.plan === null ? null : <th scope="col">Planned</th>}
            <th scope="col">Came to</th>
            <th scope="col" class="wide">
              Permit
            </th>
            <th scope="col" class="wide">
              Ended
            </th>
            <th scope="col" class="wide number">
              Epoch
            </th>
          </tr>
        </thead>
        <tbody>
          {numbers.flatMap((number) => {
            const runs: readonly (Logged | null)[] = logged.get(number) ?? [null];
            return runs.map((run, index) => (
              <Row
                key={`${number} ${run?.epoch ?? ""}`}
                number={number}
                slot={index === 0 ? (slots.get(number) ?? null) : null}
                run={run}
                planned={item.plan !== null}
              />
            ));
          })}
        </tbody>
      </table>
    </Section>
  );
}

function Row({
  number,
  slot,
  run,
  planned,
}: {
  readonly number: number;
  readonly slot: Slot | null;
  readonly run: Logged | null;
  readonly planned: boolean;
}) {
  const outcome = run?.outcome ?? slot?.came ?? "";
  return (
    <tr>
      <td>{number}</td>
      {planned ? (
        <td>
          {slot === null ? null : (
            <>
              +{lasting(Number(slot.offset_us) / 1_000)}{" "}
              <span class="muted">
                (<When at={slot.eligible_at} />)
              </span>
            </>
          )}
        </td>
      ) : null}
      <td>
        <Status state={outcome} tone={tones[outcome] ?? "wait"} />
        {run?.failure == null ? null : (
          <p class="muted small">
            {visible(run.failure.message)} <code>{visible(run.failure.code)}</code>
          </p>
        )}
        {run?.proof == null ? null : (
          <p class="small">
            proven {visible(run.proof.verdict.replaceAll("_", " "))} by {visible(run.proof.by)}
            {run.proof.note === null ? null : `: ${visible(run.proof.note)}`}
          </p>
        )}
      </td>
      <td class="wide">
        <When at={run?.admitted_at ?? null} />
      </td>
      <td class="wide">
        <When at={run?.ended_at ?? null} />
      </td>
      <td class="wide number">{run?.epoch ?? "–"}</td>
    </tr>
  );
}
