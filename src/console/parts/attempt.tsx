import type { AttemptView } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { now } from "../clock.ts";
import { type Stretch, type TimeLine, timeLine } from "../time-line.ts";
import { bytes, exact, lasting, relative } from "../words.ts";
import { Fact, Facts, Id } from "./facts.tsx";
import { Status } from "./status.tsx";
import { Took, When } from "./when.tsx";

/** An attempt on its time line, and the same in words. */
export function Attempt({ attempt }: { readonly attempt: AttemptView }) {
  const line = timeLine(attempt, attempt.finished_at === null ? now.value : 0);
  return (
    <>
      <Chart attempt={attempt} line={line} />
      <Facts>
        <Fact name="Started">
          <When at={attempt.started_at} />
        </Fact>
        <Fact name="Took">
          <Took from={attempt.started_at} until={attempt.finished_at} />
        </Fact>
        <Fact name="Deadline">
          <When at={attempt.deadline} />
        </Fact>
        <Fact name="Cleaned">
          <When at={attempt.cleaned_at} />
        </Fact>
        <Fact name="Pool">{attempt.pool}</Fact>
        <Fact name="Attempt id">
          <Id>{attempt.id}</Id>
        </Fact>
        {Object.entries(attempt.pins).map(([source, commit]) => (
          <Fact key={source} name={`Pin of ${source}`}>
            <Id>{commit}</Id>
          </Fact>
        ))}
        {attempt.log === null ? null : (
          <Fact name="Output">
            {attempt.log.lines} lines, {bytes(attempt.log.bytes)} archived;{" "}
            {attempt.log.removed_at === null ? (
              <>
                kept until <When at={attempt.log.retain_until} />
              </>
            ) : (
              <>
                removed <When at={attempt.log.removed_at} />
              </>
            )}
          </Fact>
        )}
      </Facts>
      {attempt.failure === null ? null : (
        <p class="note bad">
          {visible(attempt.failure.message)} <code>{attempt.failure.code}</code>
        </p>
      )}
      <details>
        <summary>Sandboxes: UIDs, instants and proofs</summary>
        {attempt.sandboxes.length === 0 ? <p class="muted">None so far.</p> : null}
        {attempt.sandboxes.map((sandbox) => (
          <Sandbox key={sandbox.id} sandbox={sandbox} />
        ))}
      </details>
    </>
  );
}

function Chart({ attempt, line }: { readonly attempt: AttemptView; readonly line: TimeLine }) {
  const late = line.deadline === null ? `deadline ${relative(attempt.deadline, now.value)}` : null;
  return (
    <figure class="chart" aria-label={`Time line of attempt ${attempt.attempt}`}>
      <div class="chart-axis" aria-hidden="true">
        {line.ticks.map(({ at, label }) => (
          <span key={label} style={{ left: percent(at) }}>
            {label}
          </span>
        ))}
      </div>
      <ol>
        {attempt.phases.map((phase) => {
          const cancelled = phase.failure?.code === "cancelled";
          return (
            <li key={phase.name}>
              <div class="chart-name">
                <span class="name">{visible(phase.name)}</span>
                <Status state={cancelled ? "cancelled" : phase.state} tone={cancelled ? "off" : undefined} />
                <Took from={phase.started_at} until={phase.started_at === null ? null : phase.finished_at} />
              </div>
              <div class="chart-track">
                {line.ticks.map(({ at }) => (
                  <i key={at} class="chart-tick" style={{ left: percent(at) }} />
                ))}
                {line
                  .linesOf(phase.name)
                  .map(({ sandbox, stretches }) =>
                    stretches.map((stretch) => (
                      <Bar key={`${sandbox.id} ${stretch.state}`} stretch={stretch} phase={phase.state} />
                    )),
                  )}
                {line.deadline === null ? null : (
                  <i class="chart-deadline" title="deadline" style={{ left: percent(line.deadline) }} />
                )}
                {line.now === null ? null : <i class="chart-now" style={{ left: percent(line.now) }} />}
              </div>
              {phase.progress === null && phase.failure === null ? null : (
                <p class="chart-says">
                  {phase.failure === null ? null : visible(phase.failure.message)}
                  {phase.failure !== null || phase.progress === null
                    ? null
                    : `${phase.progress.percent === null ? "" : `${phase.progress.percent} % · `}${visible(phase.progress.message)}`}
                </p>
              )}
            </li>
          );
        })}
      </ol>
      <figcaption class="legend">
        <span class="key planned">planned</span>
        <span class="key held">held</span>
        <span class="key released">released</span>
        <span class="key stopping">stopping</span>
        {late === null ? <span class="key deadline">deadline</span> : <span class="muted">{late}</span>}
      </figcaption>
    </figure>
  );
}

function Bar({ stretch, phase }: { readonly stretch: Stretch; readonly phase: string }) {
  const { state, left, width, from, until } = stretch;
  const took = until === null ? "" : `, ${lasting(Date.parse(until) - Date.parse(from))}`;
  return (
    <i
      class={`bar ${state} ${phase}`}
      title={`${state}${took}\nfrom ${exact(from)}`}
      style={{ left: percent(left), width: percent(width) }}
    />
  );
}

const percent = (fraction: number): string => `${(fraction * 100).toFixed(3)}%`;

function Sandbox({ sandbox }: { readonly sandbox: AttemptView["sandboxes"][number] }) {
  return (
    <article class="sandbox">
      <h4>
        {visible(sandbox.phase)} <Status state={sandbox.state} />
      </h4>
      <Facts>
        <Fact name="Name">
          <Id>{sandbox.name}</Id>
        </Fact>
        <Fact name="UID">{sandbox.uid === null ? "–" : <Id>{sandbox.uid}</Id>}</Fact>
        <Fact name="Runtime">{sandbox.runtime}</Fact>
        <Fact name="Exit">
          {sandbox.exit_code ?? "–"} {sandbox.outcome === null ? "" : `(${visible(sandbox.outcome)})`}
        </Fact>
        {(
          [
            ["Planned", sandbox.planned_at],
            ["Held", sandbox.held_at],
            ["Released", sandbox.released_at],
            ["Stopping", sandbox.stopping_at],
            ["Stopped", sandbox.stopped_at],
            ["Removed", sandbox.removed_at],
          ] as const
        ).map(([name, at]) =>
          at === null ? null : (
            <Fact key={name} name={name}>
              <code>{at.slice(11, -1)}</code> <When at={at} />
            </Fact>
          ),
        )}
        {sandbox.stop_proof === null ? null : <Fact name="Proof">{visible(sandbox.stop_proof)}</Fact>}
        {sandbox.stop_reason === null ? null : <Fact name="Why">{visible(sandbox.stop_reason)}</Fact>}
        {sandbox.message === null ? null : <Fact name="Message">{visible(sandbox.message)}</Fact>}
        {sandbox.stop_unproven === null ? null : (
          <Fact name="Unproven">
            since <When at={sandbox.stop_unproven.since} />: {visible(sandbox.stop_unproven.reason)}
          </Fact>
        )}
      </Facts>
    </article>
  );
}
