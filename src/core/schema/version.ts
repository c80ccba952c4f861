/**
 * The schema versions that this release understands. Below `minimum` it lacks tables that it needs; above
 * `maximum` it goes on only while the store's floor for its purpose is not above `maximum` either (M2).
 */
export const supportedSchema: SchemaRange = { minimum: 12, maximum: 14 };

export interface SchemaRange {
  readonly minimum: number;
  readonly maximum: number;
}
