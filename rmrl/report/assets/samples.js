// Responses: search, filters, order, a list, and everything known about one of them.

const ORDERS = {
  "worst first": (a, b) => compare(a.reward, b.reward),
  "best first": (a, b) => compare(b.reward, a.reward, true),
  "most disputed first": (a, b) => b.disputed - a.disputed,
  "longest first": (a, b) => b.length - a.length,
  "latest step first": (a, b) => compare(b.step, a.step, true),
  "as in the file": null,
};

/** Missing values come last. */
function compare(a, b, swapped = false) {
  const left = swapped ? b : a;
  const right = swapped ? a : b;
  if (left === null && right === null) return 0;
  if (left === null) return 1;
  if (right === null) return -1;
  return a - b;
}

function badge(reward) {
  return el("b", { className: `badge${reward === null ? " missing" : ""}` }, shown(reward, 3));
}

function sampleLink(sample) {
  return `#sample/${sample.number}`;
}

function samplesView(report) {
  const search = el("input", { type: "search", placeholder: "Search prompts, responses, judges", "aria-label": "Search", id: "search" });
  const order = choice("Order", Object.keys(ORDERS), "order");
  const run = report.sources.length > 1 ? choice("Run", ["both runs", ...report.sources.map((source) => source.label)], "run") : null;
  const source = report.dataSources.length > 1 ? choice("Data source", ["any source", ...report.dataSources], "source") : null;
  const status = choice("Verdicts", ["any verdict", "some verdict missing", ...report.statuses.filter((each) => each !== "ok")], "status");
  const low = el("input", { type: "number", step: "any", placeholder: "min", "aria-label": "Reward from", id: "low" });
  const high = el("input", { type: "number", step: "any", placeholder: "max", "aria-label": "Reward to", id: "high" });
  const counter = el("output", { id: "count" });
  const detail = el("div", { className: "detail", tabIndex: -1 });
  let rows = report.samples;
  const list = new VirtualList(78, (index) => sampleRow(report, rows[index]), "Responses");
  list.element.id = "samples";
  list.onselect = (index) => { location.hash = sampleLink(rows[index]); };

  function update() {
    const matches = textMatches(report, search.value);
    const chosenRun = run ? run.selectedIndex - 1 : -1;
    const chosenSource = source && source.selectedIndex > 0 ? source.value : null;
    rows = report.samples.filter((sample) =>
      (chosenRun < 0 || sample.run === chosenRun)
      && (chosenSource === null || report.text(sample.source) === chosenSource)
      && hasStatus(report, sample, status)
      && (low.value === "" || (sample.reward !== null && sample.reward >= Number(low.value)))
      && (high.value === "" || (sample.reward !== null && sample.reward <= Number(high.value)))
      && (matches === null || sample.texts().some((number) => number >= 0 && matches[number])));
    if (ORDERS[order.value]) rows.sort(ORDERS[order.value]);
    counter.textContent = `${rows.length} of ${report.samples.length}`;
    list.show(rows.length);
  }

  const later = debounced(update);
  search.addEventListener("input", later);
  for (const control of [order, run, source, status]) if (control) control.addEventListener("change", update);
  for (const control of [low, high]) control.addEventListener("input", later);
  const bar = el("div", { className: "toolbar" }, search, order, run, source, status, el("span", { className: "range" }, low, high), counter);
  const element = el("div", { className: "split" }, el("div", { className: "pane" }, bar, list.element), detail);
  update();
  return {
    element,
    open(sample) {
      element.classList.toggle("open", sample !== null);
      if (sample === null) sample = rows[0];
      if (sample === undefined) return;
      detail.replaceChildren(backLink("#samples"), ...sampleDetail(report, sample));
      detail.scrollTop = 0;
      list.selected = rows.indexOf(sample);
      list.draw();
    },
  };
}

function choice(label, names, id) {
  return el("select", { "aria-label": label, id }, names.map((name) => el("option", { value: name }, name)));
}

function backLink(target) {
  return el("a", { className: "back", href: target }, "‹ back to the list");
}

function hasStatus(report, sample, control) {
  if (control.selectedIndex === 0) return true;
  const statuses = sample.statuses();
  if (control.selectedIndex === 1) return statuses.some((status) => status !== "ok" && status !== "skipped");
  return statuses.includes(control.value);
}

/** One flag per text, for texts that hold every word of the query; null for an empty query. */
function textMatches(report, query) {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word);
  if (!words.length) return null;
  return report.lower().map((text) => words.every((word) => text.includes(word)));
}

function sampleRow(report, sample) {
  const facts = [];
  if (report.sources.length > 1) facts.push(report.sources[sample.run].label);
  if (sample.step !== null) facts.push(`step ${sample.step}`);
  facts.push(...sample.parts().map((part) => `${part.name} ${part.score === null ? part.status : shown(part.score, 3)}`));
  return [
    el("div", { className: "line" }, badge(sample.reward), el("span", { className: "facts" }, facts.join(" · "))),
    el("div", { className: "text" }, snippet(report.text(sample.response)) || "(empty response)"),
  ];
}

function sampleDetail(report, sample) {
  const facts = [report.text(sample.where)];
  if (report.sources.length > 1) facts.unshift(report.sources[sample.run].label);
  if (sample.step !== null) facts.push(`step ${sample.step}`);
  if (sample.source >= 0) facts.push(report.text(sample.source));
  if (sample.tokens) facts.push(`${sample.tokens} tokens`);
  if (sample.finish >= 0 && report.text(sample.finish) !== "stop") facts.push(`ended by ${report.text(sample.finish)}`);
  if (sample.advantage !== null) facts.push(`advantage ${shown(sample.advantage)}`);
  return [
    el("h2", {}, "Reward ", badge(sample.reward)),
    el("p", { className: "note" }, facts.filter((fact) => fact).join(" · ")),
    block("Prompt", report.text(sample.prompt)),
    block("Response", report.text(sample.response) || "(empty)"),
    sample.reference >= 0 ? block("Reference", report.text(sample.reference)) : null,
    why(report, sample),
    ...sample.parts().map((part) => judge(report, part)).filter((each) => each !== null),
    el("p", {}, el("a", { href: `#prompt/${sample.prompt}` }, `All responses to this prompt (${report.prompts.get(sample.prompt).length})`)),
  ].filter((each) => each !== null);
}

function block(title, text) {
  return el("div", { className: "block" }, el("h3", {}, title), el("pre", {}, text));
}

/** Score, transforms, weight and contribution of each component, and how they were combined. */
function why(report, sample) {
  const rules = report.sources[sample.run].rules;
  const parts = sample.parts();
  const adds = rules.combine === "weighted_sum" || rules.combine === "gate";
  const closed = rules.combine === "gate" && parts.some((part) => rules.gates.includes(part.name) && !(part.value > rules.gateAbove));
  let sum = 0;
  let whole = rules.known && adds && !closed;
  const rows = parts.map((part) => {
    const product = part.value === null || part.weight === null ? null : part.value * part.weight;
    if (product !== null) sum += product;
    if (product === null && part.status !== "skipped") whole = false;
    const transform = rules.transforms[part.name];
    let after = shown(part.value);
    if (part.value === null) after = transform && part.score !== null ? "depends on other responses" : "–";
    return el("tr", {},
      el("th", { scope: "row" }, part.name, rules.gates.includes(part.name) ? el("small", {}, " gate") : null),
      el("td", {}, part.score === null ? el("span", { className: "status" }, part.status) : shown(part.score)),
      el("td", {}, transform ? `${transform}: ${after}` : "–"),
      el("td", {}, part.weight === null ? "–" : shown(part.weight)),
      el("td", {}, adds && product !== null ? shown(product) : "–"));
  });
  const table = el("div", { className: "scroll" }, el("table", { className: "why" },
    el("thead", {}, el("tr", {}, ["component", "score", "transforms", "weight", "weight × value"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows)));
  return el("div", { className: "block" }, el("h3", {}, "Why this reward"), table, el("p", { className: "note" }, conclusion(sample, rules, whole, closed, sum)));
}

function conclusion(sample, rules, whole, closed, sum) {
  if (!rules.known) return "The weights are not known here: `rmrl report FILE --config reward.yaml` explains them.";
  const how = `Combined by ${rules.combine}${rules.gates.length ? `, gates ${rules.gates.join(", ")} above ${shown(rules.gateAbove)}` : ""}.`;
  if (sample.reward === null) return `${how} There is no reward: a verdict that it needs is missing.`;
  if (closed) return `${how} A gate is closed, so the other components do not count: ${shown(sample.reward)}.`;
  const near = Math.abs(sum - sample.reward) <= 1e-4 * Math.max(1, Math.abs(sample.reward));
  if (whole && near) return `${how} The products add up to ${shown(sum)}, the reward.`;
  return `${how} The reward is ${shown(sample.reward)}; it depends on more than these products.`;
}

function judge(report, part) {
  const entries = [["What it read", part.rendered], ["What it wrote", part.raw], ["Further columns", part.extra]].filter(([, number]) => number >= 0);
  const detail = part.detail >= 0 ? report.text(part.detail) : "";
  if (!entries.length && !detail) return null;
  return el("details", {},
    el("summary", {}, part.name, el("span", {}, part.score === null ? part.status : shown(part.score))),
    detail ? el("p", { className: "note" }, detail) : null,
    entries.map(([title, number]) => block(title, report.text(number))));
}
