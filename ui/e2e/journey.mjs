// Two people turn a bundle from shadow to hard, in one of three ways: by mouse, by
// keyboard alone, or without JavaScript.
//
// usage: node journey.mjs WAY STAGE BUNDLE, with the node's URL in NODE, the
// provider's address in IDP and a folder for the logins in LOGINS
import { existsSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(process.env.E2E_MODULES + "/");
const { chromium } = require("playwright-core");

const [, , way, stage, bundle] = process.argv;
const { NODE: origin, IDP, LOGINS } = process.env;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    `--host-resolver-rules=MAP idp.test:80 ${IDP}`],
});

function check(ok, what) {
  if (!ok) throw new Error(what);
}

/** A person in a browser of their own. */
async function person(name) {
  const file = `${LOGINS}/${way}-${name}.json`;
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 }, javaScriptEnabled: way !== "nojs", storageState: existsSync(file) ? file : undefined,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(180_000);
  page.on("pageerror", (e) => { throw e; });
  if (!existsSync(file)) {
    await page.goto(origin + "/login?again=1&to=/ui/");
    await Promise.all([page.waitForURL(/\/ui\/$/), page.click("a[href^='/login/oidc']")]);
    check((await page.textContent(".who")).trim() === name + "@example.com", `${name} is ${await page.textContent(".who")}`);
    await context.storageState({ path: file });
  }
  return {
    page,
    open: (path) => page.goto(origin + path),
    /** press activates what the selector finds and waits for the page that follows. */
    async press(selector, next) {
      try {
        if (way === "keyboard") await reach(page, selector);
        // The URL may stay what it was: only a new document says that it happened.
        const arrived = page.waitForEvent("framenavigated", { predicate: (f) => f === page.mainFrame() });
        await Promise.all([arrived, way === "keyboard" ? page.keyboard.press("Enter") : page.locator(selector).first().click()]);
        await page.waitForURL(next);
        await page.waitForLoadState();
      } catch (err) {
        throw new Error(`${selector}: ${err.message}\n${page.url()} says:\n${await page.innerText("body")}`);
      }
    },
    async type(selector, text) {
      if (way === "keyboard") {
        await reach(page, selector);
        await page.keyboard.type(text);
      } else {
        await page.locator(selector).first().fill(text);
      }
    },
    says: async (text) => check((await page.innerText("main")).includes(text), `${page.url()} does not say "${text}":\n${await page.innerText("main")}`),
  };
}

/** reach goes on with Tab until the focus is on the first element that the selector finds. */
async function reach(page, selector) {
  await page.locator(selector).first().waitFor();
  for (let i = 0; i < 300; i++) {
    if (await page.evaluate((s) => document.activeElement === document.querySelector(s), selector)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`${page.url()}: Tab never reaches ${selector}`);
}

const proposal = /\/ui\/proposals\/[^/]+$/;

try {
  const ann = await person("ann"), bob = await person("bob");
  if (stage === "promote") {
    // Find what the agent needs and is denied, and understand why.
    await ann.open("/ui/would-blocks?q=" + encodeURIComponent(`bundle:${bundle} host:wanted.test kind:http.request`));
    await ann.press("[data-open]", /\/ui\/would-blocks\/[0-9a-f]+$/);
    const group = ann.page.url();
    await ann.says("would have been refused in hard mode");
    await ann.says("To be allowed:");
    // Look at what the narrowest change would have made of the past, then propose it.
    await ann.press(".rung a[href*='/simulate']", /\/simulate\?digest=/);
    await ann.says("Newly allowed");
    await ann.open(new URL(group).pathname);
    await ann.type(".rung input[name=reason]", "the build needs this package");
    await ann.press(".rung button[type=submit]", proposal);
    await ann.says("GET");
    const first = new URL(ann.page.url()).pathname;
    // Her own yes does not count, a second person's does.
    await ann.press("form[action$='/approve'] button", /\/approve$/);
    await ann.says("self_approval");
    await bob.open(first);
    await bob.says("the build needs this package");
    await bob.press("form[action$='/approve'] button", proposal);
    await bob.says("applied");
    // What stays blocked is said to.
    await ann.open("/ui/would-blocks?q=" + encodeURIComponent(`bundle:${bundle} host:evil.test kind:http.request`));
    await ann.press("[data-open]", /\/ui\/would-blocks\/[0-9a-f]+$/);
    const kept = new URL(ann.page.url()).pathname;
    await ann.type("form:has(input[value=kept]) input[name=reason]", "nobody needs it");
    await ann.press("form:has(input[value=kept]) button", (u) => u.pathname === kept);
    await ann.open(kept); // the view is late: the mark shows on a later look
    // Promote: the checklist says what is missing, two people decide.
    await ann.open("/ui/bundles/" + bundle);
    await ann.says("Ready for hard mode?");
    await ann.type("#promote-why", "two people looked at everything");
    await ann.press("form[action$='/mode'] button", proposal);
    const second = new URL(ann.page.url()).pathname;
    await ann.says("Turn the bundle from shadow to hard");
    await bob.open(second);
    await bob.press("form[action$='/approve'] button", proposal);
    await bob.says("applied");
  } else {
    // A second person is not needed to go back to what gives less, and can't be done
    // without to what gives more.
    await bob.open("/ui/bundles/" + bundle);
    await bob.type("#back-why", "back to where we were");
    await bob.press("form[action$='/rollback'] button", (u) => u.pathname === "/ui/bundles/" + bundle);
    await bob.open("/ui/bundles/" + bundle);
    await bob.page.waitForFunction(() => true);
    await bob.type("#back-why", "and forward again");
    await bob.press("form[action$='/rollback'] button", /\/rollback$/);
    await bob.says("not_covered");
    // One person may pause.
    await bob.open("/ui/bundles/" + bundle);
    await bob.type("#pause-why", "something is odd");
    await bob.press("form[action$='/pause'] button", (u) => u.pathname === "/ui/bundles/" + bundle);
  }
  console.log("ok");
} catch (err) {
  console.log(err.stack);
  process.exitCode = 1;
} finally {
  await browser.close();
}
