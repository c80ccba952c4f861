import { type Static, Type } from "typebox";

/** Every error of the API (RFC 9457). `code` is what programs decide by; the rest is for people. */
export const ProblemDocument = Type.Object(
  {
    type: Type.String(),
    title: Type.String(),
    status: Type.Integer(),
    detail: Type.String(),
    code: Type.String(),
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          pointer: Type.String(),
          message: Type.String(),
          line: Type.Optional(Type.Integer()),
          column: Type.Optional(Type.Integer()),
        }),
      ),
    ),
    request_id: Type.String(),
  },
  { title: "ProblemDocument" },
);

export type ProblemDocument = Static<typeof ProblemDocument>;
