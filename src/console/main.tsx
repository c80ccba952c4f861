import { render } from "preact";
import { resume } from "./account.ts";
import { App } from "./app.tsx";
import { startClock } from "./clock.ts";
import { startFollowing } from "./live.ts";
import { followLinks } from "./place.ts";
import { startSeeing } from "./seen.ts";

followLinks();
startClock();
startSeeing();
startFollowing();
const root = document.getElementById("app");
if (root !== null) render(<App />, root);
void resume();
