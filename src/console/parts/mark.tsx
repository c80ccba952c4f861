/** The product's mark. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect width="32" height="32" rx="7" />
      <path d="M10 7v18M22 7v18M10 16h12" />
    </svg>
  );
}
