// In a program of your own: from "holdfast/work".
import { defineWork, planned, type StandardSchema, seconds, WorkFailure } from "../../src/work/sdk.ts";

export interface Invoice {
  readonly invoice: string;
  readonly cents: number;
}

/** Any validator with a Standard Schema fits here; this one is written by hand, so that the example needs none. */
const invoiceSchema: StandardSchema<Invoice> = {
  "~standard": {
    version: 1,
    vendor: "example",
    validate(value) {
      const { invoice, cents } = (value ?? {}) as Partial<Invoice>;
      if (typeof invoice !== "string" || !Number.isSafeInteger(cents) || (cents ?? 0) <= 0) {
        return { issues: [{ message: "an invoice has a name and a positive number of cents" }] };
      }
      return { value: { invoice, cents: cents ?? 0 } };
    },
  },
};

/** Charges an invoice. The provider takes a key, and charges each key once: so any attempt may be repeated. */
export function chargeWork(provider: string, pause = seconds(1)) {
  return defineWork({
    name: "charge-invoice",
    version: "1",
    safety: "provider_keyed",
    // At once and then in growing steps, and for no longer than a quarter of an hour.
    policy: planned({
      version: "2026-11",
      offsets: [0n, 1n, 3n, 7n, 15n, 60n, 240n].map((steps) => (steps * pause) as typeof pause),
      circuit: seconds(900),
    }),
    input: invoiceSchema,
    async run({ cents }, { providerKey, signal }) {
      const answer = await fetch(`${provider}/charges`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": providerKey ?? "" },
        body: JSON.stringify({ cents }),
        signal,
      });
      if (answer.status === 402) throw new WorkFailure("declined", "the provider declined the charge");
      if (!answer.ok) throw new Error(`the provider answered ${answer.status}`);
      return (await answer.json()) as { readonly receipt: string };
    },
  });
}
