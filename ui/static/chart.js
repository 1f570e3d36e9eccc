// Draws each chart from the table beside it, which says the same to who cannot
// see a picture. Dragging zooms in, a double click zooms out.

const dashes = { accent: [], deny: [6, 4] };
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const drawn = new Map();

function read(figure) {
  const rows = [...figure.querySelectorAll("tbody tr")];
  const lines = [...figure.querySelectorAll("thead [data-line]")].map((th) => ({ label: th.textContent, colour: th.dataset.line }));
  const data = [rows.map((r) => Number(r.dataset.t)), ...lines.map((_, i) => rows.map((r) => Number(r.querySelectorAll("td")[i].dataset.v)))];
  return { lines, data };
}

function draw(figure) {
  const at = figure.querySelector("[data-plot]");
  if (!at) return;
  drawn.get(figure)?.destroy();
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue("--" + name).trim();
  const { lines, data } = read(figure);
  const money = figure.dataset.unit === "usd";
  const say = (v) => v == null ? "–" : money ? "$" + v.toFixed(v !== 0 && v < 0.01 ? 6 : 2) : v.toLocaleString("en");
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
  const [from, ...raw] = data;
  const days = from[1] - from[0] >= 86400;
  const clock = (t, short) => {
    const d = new Date(t * 1000).toISOString(), day = Number(d.slice(8, 10)) + " " + months[Number(d.slice(5, 7)) - 1];
    return days || short && d.slice(11, 16) === "00:00" ? day : short ? d.slice(11, 16) : day + " " + d.slice(11, 16) + " UTC";
  };
  // Numbers are stacked bars, the tallest sum behind; money is a line under its cap.
  const order = money ? raw.map((_, i) => i) : raw.map((_, i) => raw.length - 1 - i);
  const sums = money ? raw : raw.map((_, i) => from.map((_, at) => raw.slice(0, i + 1).reduce((sum, l) => sum + l[at], 0) || null));
  const shape = money ? { width: 2, paths: globalThis.uPlot.paths.stepped({ align: 1 }) } : { width: 1, paths: globalThis.uPlot.paths.bars({ size: [0.8, 40], align: 0 }) };
  drawn.set(figure, new globalThis.uPlot({
    width: at.clientWidth, height: 180,
    tzDate: (t) => globalThis.uPlot.tzDate(new Date(t * 1000), "Etc/UTC"),
    // The legend names the colours; it holds numbers while a point is looked at.
    hooks: { setCursor: [(u) => at.classList.toggle("read", u.cursor.idx != null)] },
    cursor: { points: { show: false }, drag: { x: true, y: false } },
    scales: { x: { range: (_, min, max) => [min - (days ? 43200 : 1800), max + (days ? 43200 : 1800)] }, y: { range: (_, min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, size: 32, values: (_, all) => all.map((t) => clock(t, true)) },
      { ...axis, size: 56, values: (_, all) => all.map((v) => money ? "$" + +v.toFixed(6) : Number.isInteger(v) ? v.toLocaleString("en") : "") },
    ],
    series: [
      { label: "From", value: (_, t) => t == null ? "–" : clock(t) },
      ...order.map((i) => ({
        label: lines[i].label, stroke: colour(lines[i].colour), fill: money ? undefined : colour(lines[i].colour), dash: money ? dashes[lines[i].colour] : undefined,
        points: { show: false }, value: (_, v, __, at) => at == null ? "–" : say(raw[i][at]), ...shape,
      })),
    ],
  }, [from, ...order.map((i) => sums[i])], at));
}

const all = [...document.querySelectorAll("[data-chart]")];
const redraw = () => all.forEach(draw);
redraw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
let again;
new ResizeObserver(() => { clearTimeout(again); again = setTimeout(() => {
  for (const [figure, plot] of drawn) {
    const width = figure.querySelector("[data-plot]").clientWidth;
    if (width !== plot.width) plot.setSize({ width, height: plot.height });
  }
}, 100); }).observe(document.querySelector("main"));
