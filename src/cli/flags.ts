import { InvalidArgumentError, Option } from "commander";
import { duration } from "../config/readers.ts";
import { type Microseconds, microseconds } from "../core/time.ts";
import { type OutputFormat, outputFormats } from "./context.ts";

/** The flags' own parsers; what they throw names the flag and ends as a usage error. */

export function labelFlag(): Option {
  return new Option("--label <key=value>", "a label; may be given several times")
    .argParser((text: string, before: Readonly<Record<string, string>>) => {
      const [, key, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
      if (key === undefined || value === undefined)
        throw new InvalidArgumentError("It is written key=value.");
      return { ...before, [key]: value };
    })
    .default({}, "none");
}

export function outputFlag(...formats: readonly OutputFormat[]): Option {
  const choices = outputFormats.filter((format) => formats.includes(format));
  return new Option("-o, --output <format>", "how to print").choices(choices).default("text");
}

export function numberFlag(flags: string, description: string, minimum: number, maximum: number): Option {
  return new Option(flags, description).argParser((text: string) => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= minimum && value <= maximum) return value;
    throw new InvalidArgumentError(`It is a whole number from ${minimum} to ${maximum}.`);
  });
}

/** How much of a list. */
export function limitFlag(): Option {
  return numberFlag("--limit <number>", "at most so many", 1, 100_000).default(50);
}

/** A pause, as `durationFlag` reads it; `0s` is none. */
export function pauseFlag(flags: string, description: string): Option {
  return new Option(flags, description).argParser((text: string) =>
    text === "0s" ? microseconds(0n) : durationOf(text),
  );
}

function durationOf(text: string): Microseconds {
  try {
    return duration(text);
  } catch (error) {
    throw new InvalidArgumentError(`It ${error instanceof Error ? error.message : String(error)}.`);
  }
}

/** A duration such as `30d`, `12h` or `1h30m`, in microseconds. */
export function durationFlag(flags: string, description: string, usual: string): Option {
  return new Option(flags, description).argParser(durationOf).default(duration(usual), usual);
}
