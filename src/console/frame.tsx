import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { visible } from "../wire/visible.ts";
import { type Account, leave } from "./account.ts";
import { Badge, Banner } from "./parts/badge.tsx";
import { Mark } from "./parts/mark.tsx";
import { When } from "./parts/when.tsx";
import { place, to } from "./place.ts";

const pages = [
  ["Overview", ""],
  ["Jobs", "jobs"],
  ["Sessions", "sessions"],
  ["Work", "work"],
  ["Deliveries", "deliveries"],
  ["Commands", "commands"],
  ["Changes", "changes"],
  ["System", "system"],
] as const;

/** What is around every page: where one can go, how fresh it is, and who looks. */
export function Frame({
  account,
  children,
}: {
  readonly account: Account;
  readonly children: ComponentChildren;
}) {
  const [open, setOpen] = useState(false);
  const [here = ""] = place.value.path;
  // Whoever chose a page from the menu wants to see it.
  useEffect(() => setOpen(false), [place.value]);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <header class="bar">
        <a class="brand" href={to()}>
          <Mark />
          Holdfast
        </a>
        <Badge />
        <button
          type="button"
          class="menu"
          aria-expanded={open}
          aria-controls="nav"
          onClick={() => setOpen(!open)}
        >
          Menu
        </button>
      </header>
      <nav id="nav" class={open ? "open" : undefined} aria-label="Pages">
        <ul>
          {pages.map(([name, path]) => (
            <li key={path}>
              <a href={path === "" ? to() : to(path)} aria-current={here === path ? "page" : undefined}>
                {name}
              </a>
            </li>
          ))}
        </ul>
        <div class="account">
          <p>
            {visible(account.principal)} <span class="muted">of {visible(account.tenant)}</span>
          </p>
          <p class="muted small">
            The token ends <When at={account.expires_at} />
          </p>
          <button type="button" onClick={() => void leave()}>
            Sign out
          </button>
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        <Banner />
        {children}
      </main>
    </>
  );
}

function skip(event: Event): void {
  event.preventDefault();
  document.querySelector<HTMLElement>("main h1")?.focus();
}
