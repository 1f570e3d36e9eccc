// Verifies an export in the page, with the same script as verify.html.

const form = document.querySelector("[data-verify]");
const out = document.getElementById("verified");
const says = out.querySelector("[data-verdict]"), report = out.querySelector("[data-report]");
form.hidden = false;

const { session, root } = form.elements;
try { root.value = localStorage.getItem("gatehouse.root") ?? ""; } catch { /* not kept */ }

form.addEventListener("submit", async (e) => {
  e.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  out.hidden = false;
  says.textContent = "Reading…";
  report.textContent = "";
  try {
    const id = session.value.trim(), fingerprint = root.value.trim().toLowerCase();
    try { localStorage.setItem("gatehouse.root", fingerprint); } catch { /* not kept */ }
    const answer = await fetch("/v1/receipts/export" + (id ? "?session=" + encodeURIComponent(id) : ""));
    if (!answer.ok) throw new Error(`the node did not export: ${answer.status}`);
    const file = new Uint8Array(await answer.arrayBuffer());
    const options = { root: fingerprint, session: id, now: BigInt(Date.now()) * 1_000_000n, maxAge: 3_600_000_000_000n };
    const result = await globalThis.gatehouse.verify(file, options);
    says.textContent = globalThis.gatehouse.verdict(result);
    report.textContent = globalThis.gatehouse.report(result);
    out.dataset.exit = result.exit;
  } catch (err) {
    says.textContent = "Nothing was judged: " + (err instanceof Error ? err.message : String(err));
    out.dataset.exit = "2";
  } finally {
    button.disabled = false;
    out.focus();
  }
});
