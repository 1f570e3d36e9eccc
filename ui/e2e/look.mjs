// What the scripts that look at pages share: a browser, pages that notice what
// leaves their origin or breaks the policy, and a look at one page in both schemes
// and at two widths.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(process.env.E2E_MODULES + "/");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const wrong = [];
export const fail = (what) => { wrong.push(what); console.log("wrong: " + what); };
export const check = (ok, what) => { if (!ok) fail(what); };

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/** A page in a context of its own. A page that says what is wrong has a status that the console tells. */
export async function open(origin, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(180_000);
  // No request leaves the page's origin, nothing breaks the policy, no script fails.
  page.on("request", (r) => check(r.url().startsWith(origin + "/") || r.url().startsWith("data:"), `${page.url()} asked ${r.url()}`));
  page.on("console", (m) => { if (m.type() === "error" && !(m.location().url === page.url() && /status of [45]/.test(m.text()))) fail(`${page.url()}: ${m.text()}`); });
  page.on("pageerror", (e) => fail(`${page.url()}: ${e.message}`));
  return page;
}

/**
 * Accessible, in both schemes, and no wider than the screen. todo is [name, go, says]:
 * go takes a page there, says is what it must say. A picture of each goes to the
 * folder, if there is one. Without pictures, and unless each is wanted, both schemes
 * and both widths are looked at once: each look takes seconds.
 */
export async function look(openPage, todo, folder, each) {
  // Each scheme and width has a page of its own: they need not wait for each other.
  const views = [["light", 1280], ["dark", 400], ...(folder || each ? [["light", 400], ["dark", 1280]] : [])];
  await Promise.all(views.map(async ([colorScheme, width]) => {
    const page = await openPage({ colorScheme, viewport: { width, height: 900 } });
    for (const [name, go, says = ""] of todo) {
      const where = `${name}-${width}-${colorScheme}`;
      try {
        await go(page);
        const { over, text } = await page.evaluate(() => ({ over: document.documentElement.scrollWidth - innerWidth, text: document.querySelector("main").innerText }));
        check(over <= 0, `${where}: ${over} px too wide`);
        // Fonts differ, so a table that scrolls on a wide screen is no mistake; whoever looks at the pictures wants to know.
        if (width === 1280) for (const by of await page.$$eval("main .scroll", (all) => all.map((el) => el.scrollWidth - el.clientWidth).filter((by) => by > 0))) console.log(`note: ${where}: a table is ${by} px wider than its place`);
        check(text.includes(says), `${where} does not say "${says}"`);
        // axe is the test's own: it comes in past the page's policy, through the debugger.
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] }));
        for (const v of violations) fail(`${where} ${page.url()}: ${v.id}: ${v.nodes.map((n) => n.html).slice(0, 2).join(" ")}`);
        if (folder) {
          await page.waitForTimeout(100); // charts are drawn after the page is there
          await page.screenshot({ path: `${folder}/${where}.png`, fullPage: true });
        }
      } catch (err) {
        fail(`${where}: ${err.message}`);
      }
    }
    await page.context().close();
  }));
}

/** The watch notices what breaks the policy: a style that a page was not served with. */
export async function watches(origin) {
  const page = await (await browser.newContext()).newPage();
  const noticed = page.waitForEvent("console", (m) => m.type() === "error" && /Content Security Policy/.test(m.text()));
  await page.goto(origin + "/ui/help");
  await page.evaluate(() => document.body.append(Object.assign(document.createElement("style"), { textContent: "b { color: red }" })));
  await noticed;
  await page.context().close();
}

/** Ends the script: "ok", or how much was wrong. */
export async function done() {
  await browser.close();
  console.log(wrong.length === 0 ? "ok" : `${wrong.length} wrong`);
  process.exit(wrong.length === 0 ? 0 : 1);
}
