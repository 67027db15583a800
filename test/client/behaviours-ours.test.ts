// What the client does on our own server, in memory and in files.
import { ours } from "./behaviours-kit.ts";
import { describeBehaviours } from "./behaviours-suite.ts";

describeBehaviours(ours);
