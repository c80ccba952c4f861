const traceparent =
  /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;

/**
 * The W3C trace context of a request in the form of version 00. What is not well formed is left out and no
 * reason to refuse a request: tracing never gets into the way.
 */
export function readTraceparent(header: string | readonly string[] | undefined): string | null {
  if (typeof header !== "string" || header.length > 255) return null;
  const [, trace, parent, flags] = traceparent.exec(header) ?? [];
  return trace === undefined ? null : `00-${trace}-${parent}-${flags}`;
}
