import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import pc from "picocolors";
import { artifactView, attemptView, finishedAt, jobView, logLine } from "../../test/support/job-views.ts";
import { ApiError } from "../client/client.ts";
import { parseConfig } from "../config.ts";
import type { CommandContext } from "./context.ts";
import { livePresenter } from "./presenters.ts";
import { fitted } from "./screen.ts";
import { tableText } from "./table.ts";
import { age, elapsed } from "./time-text.ts";
import { visible } from "./visible.ts";

/** A terminal that understands what the screen sends: up, return, clear to the end, line feed. */
function virtualTerminal(rows = 24): { readonly context: CommandContext; readonly shown: () => string[] } {
  let lines: string[] = [""];
  let row = 0;
  const out = (text: string): Promise<void> => {
    // oxlint-disable-next-line no-control-regex -- The sequences that the screen sends.
    for (const [part] of text.matchAll(/\u001b\[\d*A|\u001b\[0J|\r|\n|[^\u001b\r\n]+/g)) {
      if (part === "\n") row += 1;
      else if (part.endsWith("A")) row -= Number(part.slice(2, -1));
      else if (part.endsWith("J")) lines = lines.slice(0, row);
      else if (part !== "\r") lines[row] = part;
    }
    return Promise.resolve();
  };
  const colors = pc.createColors(false);
  const terminal = {
    out,
    err: out,
    live: true,
    columns: 60,
    rows,
    colors,
    errorColors: colors,
    foreign: visible,
  };
  const now = () => Date.parse(finishedAt);
  return {
    context: { config: parseConfig({}), terminal, directory: "/", version: "0", now },
    shown: () => lines,
  };
}

describe("a job on a terminal", () => {
  test("log lines scroll by above the phases, and only the result stays", async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
    const { context, shown } = virtualTerminal();
    const presenter = livePresenter(context);
    const settled = async () => {
      t.mock.timers.tick(100);
      await setImmediate();
    };
    await presenter.picture({ job: jobView(), attempts: [attemptView()] });
    await presenter.line(logLine(1));
    await settled();
    const status = [
      "site 01976b2c-0000-7000-8000-000000000001 running · attempt…",
      "  ✔  fetch  3.0s",
      "  ▸  build  34s  50% half way",
    ];
    assert.deepEqual(shown(), ["build │ line 1", ...status]);
    await presenter.line(logLine(2, { text: "\u001b[2Jgone" }));
    await presenter.lost(new ApiError({ code: "unreachable", status: 0, detail: "nothing answers" }));
    await settled();
    assert.deepEqual(shown(), [
      "build │ line 1",
      "build │ \\x1b[2Jgone",
      ...status,
      "nothing answers; trying again",
    ]);
    const done = { job: jobView({ state: "succeeded", finished_at: finishedAt }), attempts: [attemptView()] };
    await presenter.result(done, [artifactView()]);
    assert.deepEqual(shown().slice(1), [
      "build │ \\x1b[2Jgone",
      "site succeeded after 39s",
      `artifact site.tar.gz 5 bytes sha256:${"a".repeat(64)}`,
    ]);
  });

  test("a status that is taller than the terminal is cut, not repeated", async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
    const { context, shown } = virtualTerminal(4);
    const presenter = livePresenter(context);
    for (let round = 0; round < 3; round += 1) {
      await presenter.picture({ job: jobView(), attempts: [attemptView()] });
      t.mock.timers.tick(100);
      await setImmediate();
    }
    assert.equal(shown().length, 2);
    await presenter.close();
  });
});

test("text from elsewhere can't drive a terminal, and stays readable otherwise", () => {
  assert.equal(visible("a\tb é 漢 😀"), "a\tb é 漢 😀");
  assert.equal(visible("\u001b[31m\r\n\u009b\u007f"), "\\x1b[31m\\x0d\\x0a\\x9b\\x7f");
  assert.equal(visible("\u202egpj.exe\u2066\u200b\ufeff"), "\\u202egpj.exe\\u2066\\u200b\\ufeff");
});

test("a table keeps its columns with wide characters in it", () => {
  assert.equal(
    tableText(
      ["A", "B"],
      [
        ["漢字", "1"],
        ["x", "\u001b[m"],
      ],
    ),
    "A     B\n漢字  1\nx     \\x1b[m\n",
  );
});

test("a line is cut to the terminal's width, wide characters counted as two", () => {
  assert.equal(fitted("abcdef", 5), "abcd…");
  assert.equal(fitted("漢字漢字", 5), "漢字…");
  assert.equal(fitted("abc", 5), "abc");
});

test("ages and durations are short", () => {
  const at = "2026-01-02T00:00:00.000000Z";
  const later = (seconds: number) => age(at, Date.parse(at) + seconds * 1000);
  assert.deepEqual([5, 119, 120, 7200, 172_800].map(later), ["5s", "119s", "2m", "2h", "2d"]);
  assert.deepEqual([400, 12_000, 80_000, 7_500_000].map(elapsed), ["0.4s", "12s", "1m20s", "2h05m"]);
});
