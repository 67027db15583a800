/** Types of tidy.mjs, for its test. */

export interface Tree {
  readonly paths: readonly string[];
  readonly tracked: readonly string[];
  has(path: string): boolean;
  read(path: string): string;
}

export interface Check {
  readonly name: string;
  readonly find: (tree: Tree) => readonly string[];
}

export const checks: readonly Check[];
export function openTree(base: string): Tree;
export function testTitles(tree: Tree): readonly string[];
export function tidy(base: string): readonly string[];
