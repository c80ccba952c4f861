const stampLength = 31;

/** The log of one container as its node keeps it: whole lines, each with the time at which it was completed. */
export class ContainerLog {
  /** The words that stand for a log that the node has lost. */
  lost: string | null = null;
  open = true;
  #segments: { readonly last: string; readonly text: Buffer }[] = [];
  #rests = new Map<string, Buffer>();
  #last = 0n;
  readonly #readers = new Set<() => void>();

  append(stream: "stdout" | "stderr", bytes: Buffer): void {
    const rest = this.#rests.get(stream);
    const all = rest === undefined ? bytes : Buffer.concat([rest, bytes]);
    const end = all.lastIndexOf(10) + 1;
    this.#rests.set(stream, all.subarray(end));
    if (end > 0) this.#store(all.toString("latin1", 0, end - 1).split("\n"), "\n");
  }

  close(): void {
    for (const rest of this.#rests.values()) if (rest.length > 0) this.#store([rest.toString("latin1")], "");
    this.#rests.clear();
    this.open = false;
    this.#wake();
  }

  /** The kubelet's rotation: a read sees the newest file only. */
  rotate(): void {
    this.#segments = [];
  }

  lose(containerId: string): void {
    this.lost = `unable to retrieve container logs for ${containerId}`;
    this.#wake();
  }

  /** From a time on (whole seconds, inclusive), with or without the times. */
  *read(from: number, since: string | null, timestamps: boolean): Generator<Buffer, void> {
    for (const { last, text } of this.#segments.slice(from)) {
      if (since !== null && last < since) continue;
      yield since === null && timestamps ? text : filtered(text, since, timestamps);
    }
  }

  get length(): number {
    return this.#segments.length;
  }

  onChange(reader: () => void): () => void {
    this.#readers.add(reader);
    return () => this.#readers.delete(reader);
  }

  #store(lines: readonly string[], end: string): void {
    let at = BigInt(Date.now()) * 1_000_000n;
    if (at <= this.#last) at = this.#last + 1n;
    const second = `${new Date(Number(at / 1_000_000n)).toISOString().slice(0, 19)}.`;
    let fraction = Number(at % 1_000_000_000n);
    // A burst of lines is shorter than what is left of its second, or its times stand still.
    const step = fraction + lines.length < 1_000_000_000 ? 1 : 0;
    const parts: string[] = [];
    let stamp = "";
    for (const line of lines) {
      stamp = `${second}${String(fraction).padStart(9, "0")}Z`;
      parts.push(`${stamp} ${line.endsWith("\r") && end === "\n" ? line.slice(0, -1) : line}`);
      fraction += step;
    }
    this.#last = at + BigInt(step * (lines.length - 1));
    this.#segments.push({ last: stamp, text: Buffer.from(parts.join("\n") + end, "latin1") });
    this.#wake();
  }

  #wake(): void {
    for (const reader of this.#readers) reader();
  }
}

function filtered(text: Buffer, since: string | null, timestamps: boolean): Buffer {
  const lines = text.toString("latin1").split("\n");
  const unfinished = lines.pop() ?? "";
  const keep = (line: string) => since === null || line.slice(0, stampLength - 1) >= since;
  const cut = (line: string) => (timestamps ? line : line.slice(stampLength));
  const whole = lines.filter(keep).map((line) => `${cut(line)}\n`);
  const rest = unfinished !== "" && keep(unfinished) ? cut(unfinished) : "";
  return Buffer.from(whole.join("") + rest, "latin1");
}
