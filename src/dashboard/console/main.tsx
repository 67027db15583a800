/** The page of `hapax/console`: a ledger, shown to a person. It is compiled into one script; scripts/dashboard.mjs. */

import { render } from "preact";
import "../style.css";
import "./console.css";
import { App } from "./app.tsx";
import { startPlace } from "../place.ts";
import { startTheme } from "../theme.ts";

const root = document.querySelector("#app");
if (root !== null) {
  startTheme();
  startPlace();
  render(<App />, root);
}
