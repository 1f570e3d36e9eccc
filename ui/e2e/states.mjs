// Looks at what a node that works does not show: every refusal, fault and empty
// page, as each looks in both schemes and at two widths.
//
// usage: node states.mjs ORIGIN EMPTY-ORIGIN [SCREENSHOT-FOLDER]
import { check, done, look, open, watches } from "./look.mjs";

const [, , full, empty, shots] = process.argv;
const cookies = (all) => ({ storageState: { origins: [], cookies: Object.entries(all).map(([name, value]) => ({
  name, value, domain: new URL(full).hostname, path: "/", expires: -1, httpOnly: false, secure: false, sameSite: "Lax",
})) } });
const at = (path) => (page) => page.goto(full + path);
/** Opens a page and sends one of its forms. */
const send = (path, form, fill = {}) => async (page) => {
  await page.goto(full + path);
  for (const [selector, text] of Object.entries(fill)) await page.fill(selector, text);
  const arrived = page.waitForEvent("framenavigated", { predicate: (f) => f === page.mainFrame() });
  await Promise.all([arrived, page.locator(form).first().click()]);
  await page.waitForLoadState();
};
/** Opens everything that a page keeps closed. */
const all = (go) => async (page) => {
  await go(page);
  await page.$$eval("main details", (ds) => ds.forEach((d) => { d.open = true; }));
};

await watches(full);

// The groups by what they are of.
const groups = {};
{
  const page = await open(full);
  await page.goto(full + "/ui/would-blocks?q=status:*");
  for (const [name, text] of Object.entries({ new: "packages.example.com", kept: "telemetry.example.org", noise: "cdn.example.com", killed: "only-the-killed", caution: "xn--pypi", stale: "a-very-long-name", literal: "[::1]:22", git: "git.example.com" })) {
    const link = page.locator("tr", { hasText: text }).filter({ hasNotText: "dns.query" }).locator("[data-open]").first();
    groups[name] = await link.getAttribute("href");
  }
  await page.context().close();
}

const session = (n) => "/ui/sessions/01jca" + String(n).padStart(21, "0");
const event = async (page, text) => {
  await page.goto(full + "/ui/events");
  return full + await page.locator("tr", { hasText: text }).locator("[data-open]").first().getAttribute("href");
};

await look((options) => open(full, options), [
  ["state-overview-month", all(at("/ui/?span=month"))],
  ["state-would-blocks-waiting", at("/ui/would-blocks")],
  ["state-would-blocks-everything", at("/ui/would-blocks?q=status:*+bundle:fix-failing-ci&sort=count")],
  ["state-would-blocks-kept", at("/ui/would-blocks?q=status:kept"), "kept blocked"],
  ["state-would-blocks-ignored", at("/ui/would-blocks?q=status:ignored"), "does not count"],
  ["state-would-blocks-none", at("/ui/would-blocks?q=host:nowhere.example"), "No group fits the filter"],
  ["state-group-new", all(at(groups.new))],
  ["state-group-kept-until", at(groups.kept), "until 2026-12-30 12:00 UTC"],
  ["state-group-noise", at(groups.noise), "It is noise"],
  ["state-group-killed", at(groups.killed), "Only sessions that were killed tried this"],
  ["state-group-look-alike", at(groups.caution)],
  ["state-group-allowed-by-now", at(groups.stale), "allowed by now"],
  ["state-group-refused-suggestion", at(groups.literal), "what one event asks for may be what one attacker asks for"],
  ["state-group-git", at(groups.git), "A fetch from git.example.com was refused"],
  ["state-group-mark-refused", send(groups.new, "form:has(input[value=kept]) button", { "#keep-why": "   " }), "reason is 3 to 500 characters"],
  ["state-simulate-rung", all(send(groups.new, ".rung a[href*='/simulate']")), "What a simulation cannot know"],
  ["state-simulate-edit", all(send("/ui/bundles/fix-failing-ci/edit", "button[formaction]")), "3 of 412 sessions"],
  ["state-simulate-unreadable", send("/ui/bundles/fix-failing-ci/edit", "button[formaction]", { "#source": "egress: [" }), "config_invalid"],
  ["state-proposals", at("/ui/proposals"), "Asked for by agents"],
  ["state-proposal-open", all(at("/ui/proposals/open"))],
  ["state-proposal-enforcer", at("/ui/proposals/enforcer"), "of the enforcer egress"],
  ["state-proposal-applied", at("/ui/proposals/applied"), "2 of 2"],
  ["state-proposal-rejected", at("/ui/proposals/rejected"), "rejected"],
  ["state-approval-refused-own", send("/ui/proposals/open", "form[action$='/approve'] button"), "self_approval"],
  ["state-approval-refused-changed", send("/ui/proposals/moved", "form[action$='/approve'] button"), "candidate_changed"],
  ["state-bundles", at("/ui/bundles"), "paused"],
  ["state-bundle-not-ready", at("/ui/bundles/fix-failing-ci"), "missing"],
  ["state-bundle-month", at("/ui/bundles/fix-failing-ci?span=month")],
  ["state-bundle-paused", at("/ui/bundles/release-notes"), "No event starts a session of this bundle"],
  ["state-bundle-mixed-modes", at("/ui/bundles/nightly-dependency-update-of-the-documentation-site-and-demo"), "a version waits for approval"],
  ["state-bundle-not-loaded", at("/ui/bundles/not-yet-approved"), "Not loaded."],
  ["state-rollback-refused", send("/ui/bundles/fix-failing-ci", "form[action$='/rollback'] button", { "#back-why": "back to where we were" }), "not_covered"],
  ["state-sessions", at("/ui/sessions")],
  ["state-session-ended", at(session(0)), "Children"],
  ["state-session-broken", at(session(1)), "The chain could not be followed"],
  ["state-session-running", at(session(2)), "frozen: cap_reached"],
  ["state-session-refused", at(session(3)), "none matched"],
  ["state-session-kill", at(session(2) + "/kill"), "The agent is ended"],
  ["state-session-kill-failed", send(session(2) + "/kill", "main form button"), "did not answer"],
  ["state-session-retry-refused", send(session(0) + "/retry", "main form button"), "still runs"],
  ["state-transcript", send(session(0) + "/transcript", "main form button"), "The last 262,144 of"],
  ["state-artifacts", send(session(0) + "/artifacts", "main form button"), "\\u{202e}xe.txt"],
  ["state-receipt", at("/ui/receipts/01jca000000000000000000000/3"), "What was written"],
  ["state-events", at("/ui/events"), "twin_keys"],
  ["state-event-revealed", async (page) => { await page.goto(await event(page, "bom")); await all(async () => { await Promise.all([page.waitForURL(/\/reveal$/), page.click("form[action$='/reveal'] button")]); })(page); }],
  ["state-event-quarantined", async (page) => page.goto(await event(page, "quarantined")), "Quarantined."],
  ["state-event-cron", async (page) => page.goto(await event(page, "tick"))],
  ["state-redelivery-failed", async (page) => { await page.goto(await event(page, "tick")); await Promise.all([page.waitForURL(/\/redeliver$/), page.click("form[action$='/redeliver'] button")]); }],
  ["state-providers", all(at("/ui/providers")), "Not available."],
  ["state-settings", at("/ui/settings"), "acme-audit"],
  ["state-filter-refused", at("/ui/sessions?q=colour:red"), "o filter is called colour"],
  ["state-not-found", at("/ui/sessions/01jzz000000000000000000000"), "not_found"],
], shots);

// Who may only look, and whose login is old.
for (const [as, ...paths] of [["viewer", "/ui/proposals/open", "/ui/bundles/fix-failing-ci", groups.new], ["stale", "/ui/proposals/open"]]) {
  await look((options) => open(full, { ...cookies({ as }), ...options }), paths.map((path) => [`state-${as}-${path.split("/")[2]}`, at(path)]), shots);
}
await look((options) => open(full, { ...cookies({ node: "ill" }), ...options }), [["state-overview-ill", at("/ui/"), "The node is not ready."], ["state-receipts-ill", at("/ui/receipts"), "Compatibility."]], shots);
await look((options) => open(empty, options), ["", "would-blocks", "sessions", "events", "proposals", "bundles", "receipts", "providers", "settings"]
  .map((path) => [`state-empty-${path || "overview"}`, (page) => page.goto(empty + "/ui/" + path)]), shots);

// A megabyte of a stranger's text is shown in part, and does nothing.
{
  const page = await open(full);
  for (const go of [send(session(0) + "/transcript", "main form button"), send(session(0) + "/artifacts", "main form button"), at("/ui/proposals/moved")]) {
    await go(page);
    const text = await page.innerText("main");
    check(!/[\u202a-\u202e\u2066-\u2069\u200b\u001b]/.test(text), `${page.url()}: a hidden character is on the page`);
    check(text.includes("\\u{202e}"), `${page.url()}: what is hidden is not written out`);
    check(await page.evaluate(() => globalThis.pwned) === undefined, `${page.url()}: a stranger's script ran`);
    check(await page.locator("main [hx-get^='/ui/pwned'], main img, main style, main script, main b, main a[href^='javascript']").count() === 0, `${page.url()}: a stranger's markup is markup`);
    check((await page.content()).length < 2 << 20, `${page.url()}: a megabyte of text makes a page of ${(await page.content()).length}`);
    check(await page.locator("pre.foreign").evaluateAll((all) => all.every((el) => getComputedStyle(el).direction === "ltr")), `${page.url()}: a stranger's text turns the page around`);
  }
  await page.context().close();
}

// Every page has its order of focus from the top: the skip link, then the page's own.
{
  const page = await open(full);
  for (const path of ["/ui/", groups.new, "/ui/proposals/open", session(0)]) {
    await page.goto(full + path);
    await page.keyboard.press("Tab");
    check(await page.evaluate(() => document.activeElement.textContent) === "Skip to the page", `${path}: the first stop is not the skip link`);
    await page.keyboard.press("Enter");
    await page.keyboard.press("Tab");
    check(await page.evaluate(() => document.activeElement.closest("main") !== null), `${path}: the skip link does not lead into the page`);
    check(await page.locator("[tabindex]:not([tabindex='0']):not([tabindex='-1'])").count() === 0, `${path}: an order of focus of its own`);
  }
  await page.context().close();
}

console.log("every state was looked at");
await done();
