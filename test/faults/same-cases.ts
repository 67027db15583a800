/** Loaded before the tests that are to catch a planted fault: their properties try the same cases in every run. */

import fc from "fast-check";

fc.configureGlobal({ seed: 20_261_116 });
