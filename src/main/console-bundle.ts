import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const sources = fileURLToPath(new URL("../console", import.meta.url));

/** What a browser loads before anything is shown, compressed. The build and a test refuse more. */
export const consoleBytesMax = 100_000;

/**
 * The console's files by name, from its sources: for the build, and for a checkout that runs without one. The
 * bundler is a development dependency, so the package has the result instead.
 */
export async function bundleConsole(): Promise<ReadonlyMap<string, Uint8Array>> {
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    absWorkingDir: sources,
    entryPoints: { console: "main.tsx", style: "style/style.css" },
    entryNames: "[name]-[hash]",
    outdir: "assets",
    bundle: true,
    write: false,
    minify: true,
    format: "esm",
    platform: "browser",
    target: ["es2022", "chrome111", "firefox115", "safari16.4"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    logLevel: "warning",
  });
  const files = new Map(outputFiles.map(({ path, contents }) => [basename(path), contents]));
  const icon = await readFile(join(sources, "icon.svg"));
  files.set(`icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`, new Uint8Array(icon));
  files.set("index.html", new TextEncoder().encode(pageOf([...files.keys()])));
  return files;
}

/** Of all files together, as they go over the wire. */
export function compressedBytes(files: ReadonlyMap<string, Uint8Array>): number {
  return [...files.values()].reduce((sum, bytes) => sum + gzipSync(bytes, { level: 9 }).length, 0);
}

function pageOf(names: readonly string[]): string {
  const asset = (ending: string) => `/console/assets/${names.find((name) => name.endsWith(ending)) ?? ""}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Holdfast</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<link rel="icon" href="${asset(".svg")}" type="image/svg+xml">
<link rel="stylesheet" href="${asset(".css")}">
<script type="module" src="${asset(".js")}"></script>
</head>
<body>
<div id="app"></div>
<noscript>The console is a program that runs in the browser: it needs JavaScript. On the command line:
<code>holdfast get jobs</code>.</noscript>
</body>
</html>
`;
}
