/** Types of fault-list.mjs for its tests. */

export function faultListProblems(base?: string): Promise<string[]>;
