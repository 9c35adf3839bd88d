// The first page: figures, curves, distributions, how the components agree, length, missing verdicts.

function overview(report) {
  const parts = [
    el("div", { className: "figures" }, report.sources.map((source, number) => figures(source, number, report))),
    highlights(report),
    ...perSource(report, "Hints", "Where the run found samples worth reading. A hint is no proof.", hints),
    section("Over the steps", ...curves(report)),
    section("Distributions", ...histograms(report)),
    ...perSource(report, "Correlations", "Pearson's r over responses that have both.", correlations),
    ...perSource(report, "Disagreement", "Opposite: above the median of one component and below that of the other; of a component with two values, the higher and the lower one.", disagreement),
    ...perSource(report, "Length", "Means in each fifth of the responses by length, shortest first.", lengths),
    ...perSource(report, "Verdicts", "How the verdicts of each component ended.", verdicts),
    ...perSource(report, "Where the time went", "A reward's seconds are those in which a call of it was under way, the wait for its engine's turn included. Rewards work side by side, and stages may overlap, so shares may add up to more than 100 %.", times),
  ];
  return el("div", { className: "overview" }, parts);
}

function section(title, content, note, kind = "grid") {
  const children = Array.isArray(content) ? content : [content];
  if (!children.length && !note) return null;
  return el("section", {}, el("h2", {}, title), note ? el("p", { className: "note" }, note) : null, el("div", { className: kind }, children));
}

function perSource(report, title, note, make) {
  const cards = report.sources.map((source, number) => {
    const content = make(source);
    if (!content) return null;
    const name = report.sources.length > 1 ? sourceName(source, number) : null;
    return el("div", { className: "card wide" }, name, content);
  });
  const present = cards.filter((card) => card !== null);
  return present.length ? [section(title, present, note, "grid tables")] : [];
}

function sourceName(source, number) {
  const mark = el("i", { className: `dot ${SOURCE_COLOURS[number]}` });
  return el("div", { className: "source" }, mark, source.label);
}

function figures(source, number, report) {
  const reward = source.summary.reward;
  const missing = source.rows - reward.count;
  const entries = [
    ["responses", shown(source.rows)],
    ["mean reward", reward.mean === null ? "none" : `${shown(reward.mean)} ± ${shown(reward.std, 3)}`],
    ["from, to", reward.mean === null ? "none" : `${shown(reward.min)}, ${shown(reward.max)}`],
    ["without reward", `${missing} (${percent(missing / source.rows)})`],
  ];
  const listed = source.samples.reward.length;
  const note = listed < source.rows ? `${listed} of them are listed: the worst, the best, the most disputed, and others evenly spread.` : null;
  return el("div", { className: "card wide" },
    sourceName(source, report.sources.length > 1 ? number : 0),
    el("dl", { className: "about" }, source.about.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
    el("dl", { className: "kpis" }, entries.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    note ? el("p", { className: "note" }, note) : null);
}

function hints(source) {
  if (!source.hints.length) return null;
  return el("dl", { className: "about" }, source.hints.map(([step, text]) => el("div", {}, el("dt", {}, `step ${step}`), el("dd", {}, text))));
}

function highlights(report) {
  const all = report.samples;
  const rewarded = all.filter((sample) => sample.reward !== null);
  const lists = [
    ["Worst", [...rewarded].sort((a, b) => a.reward - b.reward)],
    ["Best", [...rewarded].sort((a, b) => b.reward - a.reward)],
    ["Most disputed", all.filter((sample) => sample.disputed > 0).sort((a, b) => b.disputed - a.disputed)],
  ];
  const cards = lists.filter(([, samples]) => samples.length).map(([title, samples]) => el("div", { className: "card" },
    el("h3", {}, title),
    samples.slice(0, 4).map((sample) => el("a", { className: "pick", href: sampleLink(sample) }, badge(sample.reward), el("span", {}, snippet(report.text(sample.response), 110) || "(empty)")))));
  return section("Worth reading", cards);
}

/** The charts of the entries that vary, and a line that names the others with their value. */
function varying(entries) {
  const charts = [];
  const constant = [];
  for (const [name, lines, xLabel, values] of entries) {
    if (new Set(values).size > 1) charts.push(chart(name, lines, xLabel));
    else if (values.length) constant.push(`${name} ${shown(values[0])}`);
  }
  return [charts, constant.length ? `Without a chart, since they have one value throughout: ${constant.join(", ")}.` : null];
}

function curves(report) {
  const names = [...new Set(report.sources.flatMap((source) => Object.keys(source.curves)))];
  return varying(names.map((name) => {
    const lines = [];
    report.sources.forEach((source, number) => {
      const curve = source.curves[name];
      if (curve && curve[0].length > 1) lines.push({ label: source.label, colour: SOURCE_COLOURS[number], xs: curve[0], ys: curve[1], kind: "line" });
    });
    return [name, lines, "step", lines.flatMap((line) => line.ys)];
  }));
}

function histograms(report) {
  return varying(Object.entries(report.histograms).filter(([, drawn]) => drawn.edges.length).map(([name, drawn]) => {
    const centres = drawn.edges.slice(1).map((edge, bin) => (edge + drawn.edges[bin]) / 2);
    const lines = [];
    report.sources.forEach((source, number) => {
      const counts = drawn.counts[number];
      if (!counts) return;
      const total = counts.reduce((sum, count) => sum + count, 0) || 1;
      const ys = report.sources.length > 1 ? counts.map((count) => count / total) : counts;
      lines.push({ label: source.label, colour: SOURCE_COLOURS[number], xs: centres, ys, kind: number ? "steps" : "bars" });
    });
    const known = report.sources.map((source) => source.summary[name]).filter((each) => each && each.count);
    return [name, lines, "near", known.flatMap((each) => [each.min, each.max])];
  }));
}

function correlations(source) {
  const { names, matrix } = source.correlations;
  const rows = matrix.map((values, row) => [{ text: names[row] }, ...values.map((value) => ({ text: value === null ? "–" : value.toFixed(2), heat: value }))]);
  return heatTable(["", ...names], rows);
}

function disagreement(source) {
  if (!source.opposed.length) return null;
  const rows = source.opposed.map((pair) => [
    { text: `${pair.first} / ${pair.second}` }, { text: shown(pair.count) },
    { text: percent(pair.opposed), heat: pair.opposed === null ? null : -pair.opposed }, { text: pair.r === null ? "–" : pair.r.toFixed(2), heat: pair.r },
  ]);
  return heatTable(["components", "both", "opposite", "r"], rows);
}

function lengths(source) {
  const { edges, lines, unit } = source.length;
  const bins = edges.slice(1).map((edge, bin) => `${shown(edges[bin], 3)}–${shown(edge, 3)}`);
  const rows = Object.entries(lines).map(([name, line]) => {
    const spread = source.summary[name].std || 0;
    const mean = source.summary[name].mean;
    return [
      { text: name }, { text: line.r === null ? "–" : line.r.toFixed(2), heat: line.r },
      ...line.means.map((value) => ({ text: value === null ? "–" : shown(value, 3), heat: value === null || !spread ? null : (value - mean) / spread })),
    ];
  });
  return heatTable(["", "r", ...(bins.length ? bins : ["all"]).map((bin) => `${bin} ${unit === "tokens" ? "tok" : "char"}`)], rows);
}

function verdicts(source) {
  const names = Object.keys(source.verdicts);
  if (!names.length) return null;
  return el("div", {}, names.map((name) => {
    const counts = source.verdicts[name];
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    const bar = el("div", { className: "bar" }, Object.entries(counts).map(([status, count]) => {
      const piece = el("i", { className: statusClass(status), title: `${status}: ${count}` });
      piece.style.width = `${(100 * count) / total}%`;
      return piece;
    }));
    const words = Object.entries(counts).map(([status, count]) => `${count} ${status}`).join(", ");
    return el("div", { className: "verdict" }, el("div", {}, el("b", {}, name), el("span", {}, words)), bar);
  }));
}

function statusClass(status) {
  if (status === "ok") return "ok";
  return status === "skipped" ? "skipped" : "missing";
}

function times(source) {
  const spent = source.times;
  if (!spent) return null;
  const line = ([name, seconds]) => {
    const share = spent.seconds > 0 ? seconds / spent.seconds : null;
    return [{ text: name }, { text: duration(seconds) }, { text: percent(share), heat: share }];
  };
  const stages = Object.entries(spent.stages);
  const rewards = Object.entries(spent.rewards);
  const engines = Object.entries(spent.engines).map(([name, seconds]) => [{ text: name }, ...seconds.map((each) => ({ text: duration(each) }))]);
  const share = `of ${duration(spent.seconds)}`;
  return el("div", { className: "times" },
    stages.length ? heatTable([`stage (${spent.of})`, "seconds", share], stages.map(line)) : null,
    rewards.length ? heatTable([stages.length ? "reward" : `reward (${spent.of})`, "seconds", share], rewards.map(line)) : null,
    engines.length ? heatTable(["engine", "load", "wake", "sleep", "unload"], engines) : null);
}

function duration(seconds) {
  return `${seconds < 10 ? shown(seconds, 2) : seconds.toFixed(0)} s`;
}
