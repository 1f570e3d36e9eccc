// Watches the page of a session that grows: new rows come by themselves, a pause
// holds them, a row with the focus stays, and the end is shown.
//
// usage: node live.mjs ORIGIN SESSION [1 to measure]
import { createRequire } from "node:module";

const require = createRequire(process.env.E2E_MODULES + "/");
const { chromium } = require("playwright-core");

const [, , origin, session, bench] = process.argv;
const check = (ok, what) => { if (!ok) throw new Error(what); };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const page = await (await browser.newContext()).newPage();
page.setDefaultTimeout(180_000);
page.on("pageerror", (e) => { throw e; });
page.on("console", (m) => { if (m.type() === "error") throw new Error(m.text()); });

const tell = async (what) => check((await page.request.post(origin + what, { timeout: 180_000 })).ok(), what);
const newest = () => page.$eval("#timeline tbody tr", (r) => Number(r.id.slice(1)));
const shows = (seq) => page.waitForFunction((want) => document.querySelector("#timeline tbody tr")?.id === "r" + want, seq);

/** The first rows are enough: there are 200. */
async function shot(name) {
  if (!process.env.SCREENSHOTS) return;
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 1200 });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}-${width}-${colorScheme}.png` });
    }
  }
  await page.setViewportSize({ width: 1280, height: 720 });
}

await page.goto(`${origin}/ui/sessions/${session}`);
check(await newest() === 0, "the page does not begin with the opening");
await tell("/deny/3");
await shows(3);
check(await page.textContent(".tally li:nth-child(2) strong") === "3", "the totals are older than the rows");
await tell("/deny/500");
await shows(503);
check(await page.locator("#timeline tbody tr").count() === 200, "the page does not keep to its bound");

await shot("sessions-live");

// A pause holds what is shown, and going on catches up.
await page.keyboard.press(".");
check(await page.getAttribute("[data-pause]", "aria-pressed") === "true", "the key does not pause");
await tell("/deny/5");
await page.waitForTimeout(1000); // may only fail to notice
check(await newest() === 503, "a paused page moves");
await page.waitForFunction(() => document.querySelector("[data-pause]").textContent === "Go on, 5 newer");
await shot("sessions-live-paused");
await page.keyboard.press(".");
await shows(508);

// So does a row that somebody stands on.
await page.keyboard.press("j");
await tell("/deny/5");
await page.waitForTimeout(1000); // may only fail to notice
check(await newest() === 508, "the row with the focus was taken away");
await page.keyboard.press("Escape");
await shows(513);

if (bench) {
  await page.evaluate(() => {
    globalThis.longest = 0;
    new PerformanceObserver((l) => { for (const e of l.getEntries()) globalThis.longest = Math.max(globalThis.longest, e.duration); }).observe({ entryTypes: ["longtask"] });
  });
  let fetched = 0;
  page.on("request", (r) => { if (r.url().endsWith("/rows")) fetched++; });
  const flood = tell("/flood");
  let over = false;
  void flood.then(() => { over = true; });
  const lags = [], keys = [];
  while (!over) {
    await page.waitForTimeout(200);
    lags.push(await page.evaluate(() => Date.now() - Date.parse(document.querySelector("#timeline tbody tr time").getAttribute("datetime"))));
    keys.push(await page.evaluate(() => new Promise((done) => { const at = performance.now(); requestAnimationFrame(() => setTimeout(() => done(performance.now() - at))); })));
  }
  await flood;
  await shows(10_513);
  const p95 = (all) => all.sort((a, b) => a - b)[Math.floor(all.length * 0.95)];
  const line = (name, ours, base, unit) => console.log(JSON.stringify({ name, ours: +ours.toFixed(1), base, ratio: +(ours / base).toFixed(3), unit }));
  line("ui.live_1000rps_behind_p95/2s", p95(lags), 2000, "ms");
  line("ui.live_1000rps_frame_p95/100ms", p95(keys), 100, "ms");
  line("ui.live_1000rps_longest_task/500ms", await page.evaluate(() => globalThis.longest), 500, "ms");
  check(fetched < 60, `${fetched} requests in ten seconds`);
}

// The end changes what can be done: the page is loaded again.
const loaded = page.waitForEvent("load");
await tell("/end");
await loaded;
check((await page.textContent(".facts")).includes("ended"), "the page does not say that the session ended");
check(await page.locator("[data-live]").count() === 0, "an ended session is still live");

// What it may spend and what it left: the names only after somebody asked for them.
check((await page.textContent(".facts")).includes("$1.25 of $5.00") && (await page.textContent(".facts")).includes("$0.50 held"), "the budget is not shown");
await Promise.all([page.waitForURL("**/artifacts"), page.click("a[href$='/artifacts']")]);
check(!(await page.content()).includes("report.txt"), "a name is shown before anybody asked");
await Promise.all([page.waitForNavigation(), page.click("main form button")]);
check((await page.textContent("td.target")) === "<b>\\u{202e}report.txt", `the name is shown as ${await page.textContent("td.target")}`);
check((await page.getAttribute("td a", "href")) === `/v1/sessions/${session}/artifacts/${"ab".repeat(32)}`, "no download");
await browser.close();
console.log("\nok");
