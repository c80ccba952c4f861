import { type DestinationStream, type Logger, pino } from "pino";

/** The process's own log: JSON lines. */
export function openLog(level: string, destination?: DestinationStream): Logger {
  const settings = {
    level,
    base: { pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    // An error's other members can carry a connection with its settings, a statement with its parameters, or a
    // request with its token: none of them belongs in a log.
    serializers: { err: errorFacts, error: errorFacts },
  };
  return destination === undefined ? pino(settings) : pino(settings, destination);
}

function errorFacts(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  return {
    type: error.name,
    message: error.message,
    ...(code === undefined ? {} : { code }),
    stack: error.stack,
    ...(error.cause === undefined ? {} : { cause: errorFacts(error.cause) }),
  };
}
