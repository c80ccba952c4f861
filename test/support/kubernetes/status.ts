/** An answer that is no success, as the API server words it. */
export class StatusError extends Error {
  readonly code: number;
  readonly body: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    code: number,
    reason: string | null,
    message: string,
    details?: object,
    headers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
    this.code = code;
    this.headers = headers;
    this.body = {
      kind: "Status",
      apiVersion: "v1",
      metadata: {},
      status: "Failure",
      message,
      ...(reason === null ? {} : { reason }),
      ...(details === undefined ? {} : { details }),
      code,
    };
  }
}

export interface Cause {
  readonly reason: string;
  readonly message: string;
  readonly field: string;
}

export const notFound = (name: string): StatusError =>
  new StatusError(404, "NotFound", `pods "${name}" not found`, { name, kind: "pods" });

export const badRequest = (message: string): StatusError => new StatusError(400, "BadRequest", message);

/** What a failed `test`, an absent path and an unknown operation all answer: it tells nothing. */
export const opaque = (): StatusError =>
  new StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {});

/** The server's message lists each cause once, its details may repeat one. */
export function invalid(name: string, causes: readonly Cause[]): StatusError {
  const texts = causes.map(({ field, message }) => `${field}: ${message}`);
  const text = texts.length === 1 ? (texts[0] ?? "") : `[${texts.join(", ")}]`;
  // What is wrong with the metadata of a change is found twice.
  const repeated = causes.filter(({ field }) => isChange(field));
  return new StatusError(422, "Invalid", `Pod "${name}" is invalid: ${text}`, {
    ...(name === "" ? {} : { name }),
    kind: "Pod",
    causes: [...causes, ...repeated],
  });
}

const isChange = (field: string): boolean => /^metadata\.(uid|finalizers)/.test(field);

export const invalidValue = (field: string, value: unknown, words: string): Cause => ({
  reason: "FieldValueInvalid",
  message: `Invalid value: ${JSON.stringify(value)}: ${words}`,
  field,
});

export const forbiddenField = (field: string, words: string): Cause => ({
  reason: "FieldValueForbidden",
  message: `Forbidden: ${words}`,
  field,
});

export const expired = (message: string, next?: string): StatusError => {
  const error = new StatusError(410, "Expired", message);
  return next === undefined ? error : withContinue(error, next);
};

function withContinue(error: StatusError, next: string): StatusError {
  return Object.assign(error, { body: { ...error.body, metadata: { continue: next } } });
}
