import { resume, signIn } from "./account.ts";
import { Frame } from "./frame.tsx";
import { Changes } from "./pages/changes.tsx";
import { Commands } from "./pages/commands.tsx";
import { Deliveries } from "./pages/deliveries.tsx";
import { Delivery } from "./pages/delivery.tsx";
import { Job } from "./pages/job.tsx";
import { Jobs } from "./pages/jobs.tsx";
import { Overview } from "./pages/overview.tsx";
import { Session } from "./pages/session.tsx";
import { Sessions } from "./pages/sessions.tsx";
import { System } from "./pages/system.tsx";
import { Work } from "./pages/work.tsx";
import { WorkItem } from "./pages/work-item.tsx";
import { Empty, Loading } from "./parts/empty.tsx";
import { Page } from "./parts/page.tsx";
import { Problem } from "./parts/problem.tsx";
import { SignInForm } from "./parts/sign-in.tsx";
import { place, to } from "./place.ts";

export function App() {
  const { value } = signIn;
  switch (value.state) {
    case "looking":
      return <Loading />;
    case "unknown":
      return (
        <main class="sign-in">
          <Problem error={value.error} again={() => void resume()} />
        </main>
      );
    case "out":
      return <SignInForm why={value.why} />;
    case "in":
      return (
        <Frame account={value.account}>
          <Shown />
        </Frame>
      );
  }
}

function Shown() {
  const [name = "", id] = place.value.path;
  switch (name) {
    case "":
      return <Overview />;
    case "jobs":
      return id === undefined ? <Jobs /> : <Job key={id} id={id} />;
    case "sessions":
      return id === undefined ? <Sessions /> : <Session key={id} id={id} />;
    case "work":
      return id === undefined ? <Work /> : <WorkItem key={id} id={id} />;
    case "deliveries":
      return id === undefined ? <Deliveries /> : <Delivery key={id} id={id} />;
    case "commands":
      return <Commands />;
    case "changes":
      return <Changes />;
    case "system":
      return <System />;
    default:
      return (
        <Page title="There is no such page">
          <Empty title="The address may be of another release.">
            <p>
              <a href={to()}>Go to the overview</a>
            </p>
          </Empty>
        </Page>
      );
  }
}
