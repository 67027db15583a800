import { describe, expect, test } from "vitest";
import { isAuthority, parseTarget } from "./target.ts";

describe("parseTarget", () => {
  test.each([
    ["/a/b?c=d?e", { path: "/a/b", query: "c=d?e", authority: undefined }],
    ["//a", { path: "//a", query: "", authority: undefined }],
    ["http://h/a?b", { path: "/a", query: "b", authority: "h" }],
    ["HTTPS://h:443/a", { path: "/a", query: "", authority: "h:443" }],
    ["http://h", { path: "/", query: "", authority: "h" }],
    ["http://h?b", { path: "/", query: "b", authority: "h" }],
    ["http:///a", { path: "/a", query: "", authority: "" }],
  ])("%s", (target, parts) => {
    expect(parseTarget(target)).toEqual(parts);
  });

  test.each(["", "*", "a/b", "ftp://h/a", "http:/a", "http//h/a"])("%s is none", (target) => {
    expect(parseTarget(target)).toBeUndefined();
  });
});

describe("isAuthority", () => {
  test.each(["h", "my_host.example", "127.0.0.1:4437", "[::1]:80", "xn--bcher-kva.example"])(
    "%s is one",
    (text) => {
      expect(isAuthority(text)).toBe(true);
    },
  );

  test.each([
    ...["", "a b", "a:b", "a:1:2", ":80", "u@h", "h/p", 'h"', "<h>", "::1", "[::1", "h:", "h,i"],
    "h".repeat(263),
  ])("%s is none", (text) => {
    expect(isAuthority(text)).toBe(false);
  });
});
