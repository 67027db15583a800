// What the client does on the reference server of the public protocol, in memory and in files.
import { theirs } from "./behaviours-kit.ts";
import { describeBehaviours } from "./behaviours-suite.ts";

describeBehaviours(theirs);
