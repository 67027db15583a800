/** The dashboard: a page that shows a server to a person. It is compiled into one script; scripts/dashboard.mjs. */

import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./app.tsx";
import { startLooking } from "./metrics.ts";
import { startPlace } from "./place.ts";
import { startTheme } from "./theme.ts";

const root = document.querySelector("#app");
if (root !== null) {
  startTheme();
  startPlace();
  startLooking();
  render(<App />, root);
}
