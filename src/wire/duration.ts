const microsecondsOf = { us: 1n, ms: 1_000n, s: 1_000_000n, m: 60_000_000n, h: 3_600_000_000n } as const;

/**
 * Read a duration as people write one, in whole microseconds: `90s`, `10m`, `1h30m`. Units h, m, s, ms, us,
 * each at most once, in this order. `undefined` for anything else.
 */
export function readDuration(text: string): bigint | undefined {
  const match = /^(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?(?:(\d{1,9})us)?$/.exec(text);
  if (match === null || text === "") return undefined;
  const part = (index: number, unit: keyof typeof microsecondsOf) =>
    BigInt(match[index] ?? "0") * microsecondsOf[unit];
  return part(1, "h") + part(2, "m") + part(3, "s") + part(4, "ms") + part(5, "us");
}

/** Write whole microseconds the same way: `1h30m`, `90ms`; nothing is `0s`. */
export function writeDuration(microseconds: bigint): string {
  let rest = microseconds;
  let text = "";
  for (const unit of ["h", "m", "s", "ms", "us"] as const) {
    const count = rest / microsecondsOf[unit];
    if (count > 0n) text += `${count}${unit}`;
    rest -= count * microsecondsOf[unit];
  }
  return text === "" ? "0s" : text;
}
