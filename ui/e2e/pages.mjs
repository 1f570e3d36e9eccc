// Looks at every page of a running node as a person would: in light and dark, at
// two widths, by keyboard, and without JavaScript. It ends with 1 and a line for
// each thing that is wrong.
//
// usage: node pages.mjs LOGIN-LINK [SCREENSHOT-FOLDER]
import { check, done, look, open as openAt } from "./look.mjs";

const [, , link, shots] = process.argv;
const origin = new URL(link).origin;

let state;
const open = (options = {}) => openAt(origin, { storageState: state, ...options });

// The login link works once.
{
  const page = await open();
  await page.goto(link);
  check(page.url() === origin + "/ui/", `the link led to ${page.url()}`);
  state = await page.context().storageState();
  const again = await page.request.get(link);
  check(again.status() === 403, `the link worked twice: ${again.status()}`);
  await page.context().close();
}

// Every page that can be reached from the overview, each kind once.
const kinds = new Map();
const kindOf = (path) => path.split("?")[0].replace(/^(\/ui\/\w[\w-]*\/).+?(\/|$)/, "$1*$2").replace(/\/\d+$/, "/*");
{
  const page = await open();
  const todo = ["/ui/", "/ui/nowhere", "/ui/sessions?q=state:running", "/ui/would-blocks?q=status:*"];
  kinds.set("missing", "/ui/nowhere");
  kinds.set("empty", "/ui/sessions?q=bundle:none");
  kinds.set("all would-blocks", "/ui/would-blocks?q=status:*");
  while (todo.length > 0) {
    const path = todo.shift();
    await page.goto(origin + path);
    for (const href of await page.$$eval("a[href^='/ui/']", (as) => as.map((a) => a.getAttribute("href")))) {
      const to = href.split("#")[0];
      if (!/\.(csv|ndjson)(\?|$)/.test(to) && !kinds.has(kindOf(to))) { kinds.set(kindOf(to), to); todo.push(to); }
    }
  }
  await page.context().close();
}
console.log(`pages: ${kinds.size}`);
check(kinds.size >= 12, `only ${kinds.size} kinds of pages: ${[...kinds.keys()].join(" ")}`);

// Text of strangers is inert: all of it is shown, none of it acts.
{
  const page = await open();
  let found = 0;
  await page.goto(origin + "/ui/events");
  const events = await page.$$eval("[data-open]", (as) => as.map((a) => a.getAttribute("href")));
  for (const path of [...events, ...[...kinds.values()]]) {
    await page.goto(origin + path);
    const reveal = page.locator("form[action$='/reveal'] button, form[action$='/transcript'] button");
    if (await reveal.count() > 0) {
      check(!(await page.content()).includes("globalThis.pwned"), `${path} shows text before anybody revealed it`);
      await Promise.all([page.waitForURL(/\/(reveal|transcript)$/), reveal.first().click()]);
    }
    await page.$$eval("details", (all) => all.forEach((d) => { d.open = true; }));
    const text = await page.evaluate(() => document.body.innerText);
    if (!text.includes("globalThis.pwned")) continue;
    found++;
    check(text.includes("\\u{202e}") && text.includes("\\u{e0041}") && (text.includes("\\u{1b}") || path.startsWith("/ui/proposals/")), `${path}: hidden characters are not written out`);
    check(!/[\u202a-\u202e\u2066-\u2069\u200b\u001b]/.test(text), `${path}: a hidden character is on the page`);
    await page.waitForTimeout(300); // may only fail to notice
    check(await page.evaluate(() => globalThis.pwned) === undefined, `${path}: a stranger's script ran`);
    check(await page.locator("main [hx-get^='/ui/pwned'], main img, main style, main script, main a[href^='javascript']").count() === 0, `${path}: a stranger's markup is markup`);
    check(await page.isVisible("h1"), `${path}: a stranger's style hides the page`);
    check((await page.content()).length < 2 << 20, `${path}: a megabyte of text makes a page of ${(await page.content()).length}`);
  }
  check(found >= 1, "no page shows the hostile text");
  await page.context().close();
}

// What pages link to at the API and as downloads is there.
{
  const page = await open();
  const links = new Set();
  for (const path of kinds.values()) {
    await page.goto(origin + path);
    for (const href of await page.$$eval("a[href^='/v1/'], a[href*='.csv'], a[href*='.ndjson']", (as) => as.map((a) => a.getAttribute("href")))) links.add(href);
  }
  for (const href of links) {
    const r = await page.request.get(origin + href);
    check(r.ok() || /\/proof$/.test(href), `${href}: ${r.status()}`); // a receipt may be younger than the checkpoint
  }
  check(links.size >= 8, `only ${links.size} links to the API and downloads`);
  await page.context().close();
}

// Accessible in both schemes, no wider than the screen.
const named = (kind) => kind.replace(/^\/ui\//, "").replaceAll("*", "one").replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "") || "overview";
await look(open, [...kinds].map(([kind, path]) => [named(kind), (page) => page.goto(origin + path)]), shots, true);

// A chart is drawn from its table, in the colours of the scheme, and the table is
// what a browser without JavaScript has.
for (const [path, rows] of [["/ui/", 24], ["/ui/?span=month", 30]]) {
  const page = await open();
  await page.goto(origin + path);
  await page.waitForSelector("[data-chart] canvas");
  const got = await page.$eval("[data-chart] details table", (t) => ({
    rows: t.tBodies[0].rows.length, denied: [...t.querySelectorAll("td:nth-of-type(3)")].reduce((sum, td) => sum + Number(td.dataset.v), 0),
  }));
  check(got.rows === rows && got.denied > 0, `${path}: a chart over ${JSON.stringify(got)}`);
  const painted = () => page.$eval("[data-chart] canvas", (c) => c.toDataURL());
  const light = await painted();
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForFunction((was) => document.querySelector("[data-chart] canvas").toDataURL() !== was, light);
  await page.context().close();
}

// By keyboard only: to the sessions, down two rows, open, and the filter.
{
  const page = await open();
  await page.goto(origin + "/ui/");
  await page.keyboard.press("g");
  await Promise.all([page.waitForURL("**/ui/sessions"), page.keyboard.press("s")]);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  const want = await page.$eval("tr.at [data-open]", (a) => a.getAttribute("href"));
  await Promise.all([page.waitForURL("**" + want), page.keyboard.press("Enter")]);
  await page.keyboard.press("g");
  await Promise.all([page.waitForURL("**/ui/would-blocks"), page.keyboard.press("w")]);
  await page.keyboard.press("/");
  await page.keyboard.type("method:GET");
  await Promise.all([page.waitForURL("**/ui/would-blocks?q=method%3AGET"), page.keyboard.press("Enter")]);
  check(await page.locator(".chips a").count() === 1, "no chip for the filter");
  await page.goto(origin + "/ui/help");
  await page.locator("[name=keys]").uncheck();
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("o");
  await page.waitForTimeout(300); // may only fail to notice
  check(page.url().endsWith("/ui/help"), "keys that are switched off still work");
  await page.context().close();
}

// The page verifies a session's receipts, and says so of the wrong fingerprint.
{
  const page = await open();
  await page.goto(origin + "/ui/sessions");
  const session = (await page.$eval("[data-open]", (a) => a.getAttribute("href"))).split("/").pop();
  for (const [root, exit] of [[process.env.ROOT, "0"], ["00".repeat(32), "4"]]) {
    await page.goto(origin + "/ui/receipts?session=" + session);
    await page.fill("#v-root", root);
    await page.click("[data-verify] button");
    await page.waitForFunction(() => document.querySelector("#verified").dataset.exit !== undefined);
    const got = await page.$eval("#verified", (el) => el.dataset.exit);
    check(got === exit, `verified in the page with ${root.slice(0, 8)}: exit ${got}, want ${exit}`);
    if (shots) await page.screenshot({ path: `${shots}/receipts-verified-${exit === "0" ? "right" : "wrong"}-root-1280-light.png`, fullPage: true });
  }
  await page.context().close();
}

// Without JavaScript every page says the same.
{
  const page = await open({ javaScriptEnabled: false });
  for (const path of kinds.values()) {
    await page.goto(origin + path);
    check((await page.textContent("h1")).trim() !== "", `${path} has no heading without JavaScript`);
  }
  await page.goto(origin + "/ui/sessions");
  await page.fill("#q", "mode:shadow");
  await page.click(".search button");
  check(page.url().endsWith("?q=mode%3Ashadow"), "the filter needs JavaScript");
  await page.context().close();
}

// A page of another origin gets nothing, and neither does a rebound name.
{
  const page = await open();
  const foreign = await page.request.post(origin + "/ui/sessions/x/kill", { headers: { Origin: "http://evil.test" } });
  check(foreign.status() === 403, `a cross-origin post: ${foreign.status()}`);
  const silent = await page.request.post(origin + "/ui/sessions/x/kill", { headers: { Origin: "" } });
  check(silent.status() === 403, `a post without origin: ${silent.status()}`);
  const rebound = await page.request.get(origin + "/ui/", { headers: { Host: "evil.test" } });
  check(rebound.status() === 421, `another host: ${rebound.status()}`);
  await page.context().close();
}

await done();
