import { expect, test } from "vitest";
import { addressOf } from "./address.ts";

const BASE = new URL("https://shop.example/hapax/");

test("a request goes to the server of the page, however a path begins", () => {
  for (const path of [
    "///evil.example/x",
    "//evil.example/x",
    "/\\evil.example",
    "/https://evil.example/",
  ])
    expect(addressOf(BASE, path)?.href.startsWith(BASE.href), path).toBe(true);
  expect(addressOf(BASE, "/v1/stream/a:b/ü ?#")?.href).toBe(
    "https://shop.example/hapax/v1/stream/a%3Ab/%C3%BC%20%3F%23",
  );
});

test("segments may have slashes, and a query has what is given", () => {
  expect(
    addressOf(BASE, ["_hapax", "groups", "a/b"], { after: "x&y", limit: undefined })?.href,
  ).toBe("https://shop.example/hapax/_hapax/groups/a%2Fb?after=x%26y");
});

test("a name that no URL can carry has no address, and is not taken for another one", () => {
  for (const name of [".", "..", "\ud800"])
    expect(addressOf(BASE, ["_hapax", "groups", name]), JSON.stringify(name)).toBeUndefined();
  expect(addressOf(BASE, "/v1/stream/a/../orders")).toBeUndefined();
});
