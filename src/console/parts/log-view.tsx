import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ApiError, LogLine } from "../../client/client.ts";
import { client } from "../account.ts";
import { failure } from "../live.ts";
import { LogLines, marked, type ShownLine } from "../log-lines.ts";
import { seen } from "../seen.ts";
import { clockTime, count, exact } from "../words.ts";
import { Problem } from "./problem.tsx";
import { Status } from "./status.tsx";

const lineHeight = 20;
const around = 20;
/** Lines are shown in batches, however fast they come. */
const renewMs = 80;

interface Source {
  readonly job: string;
  readonly attempt?: number | undefined;
  readonly phase?: string | undefined;
  /** Whether more can come. */
  readonly open: boolean;
}

/** An output as it is written: searched, followed, a hundred thousand lines of it. */
export function LogView({ job, attempt, phase, open }: Source) {
  const { lines, error, ended, again } = useLines({ job, attempt, phase, open });
  const [words, setWords] = useState("");
  const [place, setPlace] = useState(0);
  const [following, setFollowing] = useState(true);
  const box = useRef<HTMLDivElement>(null);
  const total = lines.total;
  const shown = useMemo(() => lines.find(words), [lines, total, words]);
  const [range, look] = useRange(box, shown.length);

  useLayoutEffect(() => {
    const element = box.current;
    if (following && element !== null) element.scrollTop = element.scrollHeight;
    look();
    // The lines are the same list, which grows.
  }, [following, shown, total, look]);

  const onScroll = () => {
    const element = box.current;
    if (element === null) return;
    const end = element.scrollHeight - element.scrollTop - element.clientHeight < lineHeight * 2;
    if (following !== end) setFollowing(end);
    look();
  };
  const step = (by: number) => {
    if (words === "" || shown.length === 0) return;
    const next = (place + by + shown.length) % shown.length;
    setPlace(next);
    setFollowing(false);
    if (box.current !== null) box.current.scrollTop = next * lineHeight;
  };

  return (
    <div class="log">
      <div class="log-bar">
        <label>
          Search
          <input
            type="search"
            value={words}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => {
              setWords(event.currentTarget.value);
              setPlace(0);
            }}
            onKeyDown={(event) => {
              if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
            }}
          />
        </label>
        <span class="muted small" aria-live="polite">
          {words === "" ? `${count(total)} lines` : `${count(shown.length)} of ${count(lines.length)} lines`}
        </span>
        <label class="check">
          <input
            type="checkbox"
            checked={following}
            onChange={(event) => setFollowing(event.currentTarget.checked)}
          />
          Follow
        </label>
        {ended ? <Status state="ended" word="complete" tone="off" /> : <Status state="running" word="live" />}
      </div>
      {lines.dropped === 0 ? null : (
        <p class="muted small">The first {count(lines.dropped)} lines are on the server alone.</p>
      )}
      <div class="log-box" ref={box} onScroll={onScroll} tabIndex={0} role="region" aria-label="Output">
        {shown.length === 0 ? (
          <p class="muted log-none">{words === "" ? "No output so far." : "No line contains this."}</p>
        ) : (
          <div class="log-lines" style={{ height: `${shown.length * lineHeight}px` }}>
            <div style={{ transform: `translateY(${range[0] * lineHeight}px)` }}>
              {shown.slice(range[0], range[1]).map((one) => (
                <Line key={one.number} one={one} words={words} phased={phase === undefined} />
              ))}
            </div>
          </div>
        )}
      </div>
      {error === null ? null : <Problem error={error} again={again} />}
    </div>
  );
}

function Line({
  one,
  words,
  phased,
}: {
  readonly one: ShownLine;
  readonly words: string;
  readonly phased: boolean;
}) {
  const { line, number } = one;
  return (
    <div class={`log-line ${line.stream}`}>
      <span class="log-number">{number}</span>
      <span class="log-at" title={exact(line.at)}>
        {clockTime(line.at)}
      </span>
      {phased ? <span class="log-phase">{line.phase}</span> : null}
      <span class="log-text">
        {marked(one, words).map(({ text, style, found }, index) => {
          const classes = [
            style.color === null ? "" : `c${style.color}`,
            style.bold ? "b" : "",
            style.dim ? "d" : "",
            style.italic ? "i" : "",
            style.underline ? "u" : "",
          ];
          const name = classes.filter(Boolean).join(" ");
          if (found) return <mark key={index}>{text}</mark>;
          return name === "" ? (
            text
          ) : (
            <span key={index} class={name}>
              {text}
            </span>
          );
        })}
      </span>
    </div>
  );
}

/** Which lines are on the screen. */
function useRange(box: { readonly current: HTMLDivElement | null }, length: number) {
  const [range, setRange] = useState<readonly [number, number]>([0, 60]);
  const look = useCallback(() => {
    const { current: element } = box;
    if (element === null) return;
    const first = Math.max(0, Math.floor(element.scrollTop / lineHeight) - around);
    const end = Math.ceil((element.scrollTop + element.clientHeight) / lineHeight) + around;
    setRange((before) => (before[0] === first && before[1] === end ? before : [first, end]));
  }, []);
  const first = Math.min(range[0], Math.max(0, length - 1));
  return [[first, Math.min(range[1], length)] as const, look] as const;
}

interface Reading {
  readonly key: string;
  readonly lines: LogLines;
  /** The cursor of the last line that came. */
  after: string | undefined;
  error: ApiError | null;
  ended: boolean;
}

const beginning = (key: string): Reading => ({
  key,
  lines: new LogLines(),
  after: undefined,
  error: null,
  ended: false,
});

/** The client resumes after the last line by itself; what it gives up on is shown. */
function useLines({ job, attempt, phase, open }: Source) {
  const [, setShown] = useState(0);
  const [turn, setTurn] = useState(0);
  const key = JSON.stringify([job, attempt, phase]);
  const state = useRef<Reading>(beginning(key));
  const looked = seen.value;
  useEffect(() => {
    if (state.current.key !== key) state.current = beginning(key);
    const own = state.current;
    const render = () => setShown((before) => before + 1);
    render();
    if (!looked || own.ended) return undefined;
    own.error = null;
    const gone = new AbortController();
    let batch: LogLine[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const renew = () => {
      clearTimeout(timer);
      timer = undefined;
      own.lines.add(batch);
      own.after = batch.at(-1)?.cursor ?? own.after;
      batch = [];
      if (!gone.signal.aborted) render();
    };
    async function read() {
      const { signal } = gone;
      try {
        for await (const line of client.logs(job, {
          follow: open,
          attempt,
          phase,
          after: own.after,
          signal,
        })) {
          if (signal.aborted) return;
          batch.push(line);
          timer ??= setTimeout(renew, renewMs);
        }
        own.ended = true;
      } catch (error) {
        if (signal.aborted) return;
        own.error = failure(error);
      }
      renew();
    }
    void read();
    return () => {
      renew();
      gone.abort();
    };
    // What is followed to its end is not read again because its job has ended.
  }, [key, turn, looked]);
  const { lines, error, ended } = state.current;
  return { lines, error, ended, again: () => setTurn(turn + 1) };
}
