import type { ApiError } from "../../client/client.ts";
import { errorCatalogue, isErrorCode } from "../../wire/errors.ts";
import { visible } from "../../wire/visible.ts";

/** What was refused, why, and what to do. */
export function Problem({
  error,
  again,
}: {
  readonly error: ApiError;
  readonly again?: (() => void) | undefined;
}) {
  const entry = isErrorCode(error.code) ? errorCatalogue[error.code] : null;
  return (
    <div class="problem" role="alert">
      <p>
        <strong>{entry?.title ?? "Something went wrong"}.</strong> {visible(error.detail)}
      </p>
      {entry === null ? null : <p class="muted">{entry.next}</p>}
      <p class="muted small">
        <code>{visible(error.code)}</code>
        {error.requestId === null ? null : (
          <>
            {" "}
            · request <code>{visible(error.requestId)}</code>
          </>
        )}
      </p>
      {again === undefined ? null : (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}
