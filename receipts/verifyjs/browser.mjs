// Opens verify.html from disk in a browser, as an auditor does, and prints what
// it says as JSON. Run by page_test.go: node browser.mjs PAGE EXPORT ROOT
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { chromium } = createRequire(new URL("../../.tools/e2e/", import.meta.url))("playwright-core");
const [, , file, evidence, root] = process.argv;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const page = await browser.newPage();
  const errors = [], requests = [];
  page.on("pageerror", (e) => errors.push(String(e)));
  page.on("request", (r) => requests.push(r.url()));
  await page.goto(pathToFileURL(file).href);
  await page.setInputFiles("#file", evidence);
  const verdicts = [];
  for (const pinned of [root, "", root.replace(/^./, (c) => (c === "0" ? "1" : "0"))]) {
    await page.fill("#root", pinned);
    await page.click("#go");
    await page.waitForFunction(() => !document.getElementById("go").disabled);
    verdicts.push(await page.textContent("#verdict"));
  }
  const opened = requests.length;
  const fetched = await page.evaluate(() => fetch("https://example.com/").then(() => true, () => false));
  console.log(JSON.stringify({ verdicts, lines: (await page.textContent("#report")).split("\n").slice(0, 4), errors, opened, fetched }));
} finally {
  await browser.close();
}
