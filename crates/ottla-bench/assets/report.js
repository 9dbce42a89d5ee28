// The page: measured beside published figures, from the results embedded in it.
"use strict";

(() => {
  const { results, figures } = JSON.parse(document.getElementById("data").textContent);
  const known = new Map(figures.map((figure) => [figure.name, figure]));
  const report = document.getElementById("report");

  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (key === "class") element.className = value;
      else if (key in element) element[key] = value;
      else element.setAttribute(key, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 100) return Math.round(value).toLocaleString("en-US");
    if (size >= 10) return value.toFixed(1);
    if (size === 0) return "0";
    return size >= 0.1 ? value.toFixed(2) : value.toPrecision(2);
  }
  const quantity = (bytes) => {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let at = 0;
    while (bytes >= 1024 && at < 4) { bytes /= 1024; at += 1; }
    return `${number(bytes)} ${units[at]}`;
  };
  const shortPath = (path) => (path.includes(".settings.") ? path.split(".settings.")[1] : path.replace(/\./g, " "));
  const percent = (part) => `${number(part * 100)} %`;

  const verdicts = {
    better: "better", worse: "worse", different: "different",
    "no-difference-beyond-noise": "no difference beyond noise", "too-few-rounds": "too few rounds to decide",
  };

  // ---- the whole page ----

  function page() {
    const title = results.length === 1 ? titleOf(results[0]) : `${results.length} results`;
    document.title = `${title} · Ottla bench`;
    const theme = make("button", { title: "Light, dark, or as the system has it" });
    const themes = ["auto", "light", "dark"];
    const showTheme = () => { theme.textContent = `Theme: ${document.documentElement.dataset.theme || "auto"}`; };
    theme.onclick = () => {
      const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3];
      if (next === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = next;
      showTheme();
      plotting.redrawAll();
    };
    showTheme();
    report.append(make("header", {}, make("div", {}, make("h1", { textContent: title }), make("p", { class: "soft small", textContent: "measured by ottla bench" })), theme));
    for (const result of results) showResult(result);
  }

  function titleOf(result) {
    const names = result.scenarios.map((scenario) => scenario.name);
    if (names.length === 0) return "nothing was measured";
    const groups = [...new Set(names.map((name) => name.split("/")[0]))];
    return names.length === 1 ? names[0] : groups.join(", ");
  }

  function showResult(result) {
    const overview = make("section");
    if (results.length > 1) overview.append(make("h2", { textContent: titleOf(result) }));
    const targets = result.targets.map((target) => `${target.name}: ${target.description}, ${target.brokers} broker${target.brokers === 1 ? "" : "s"}`);
    overview.append(make("p", { textContent: targets.join(" · ") }));
    overview.append(make("p", { class: "soft small", textContent: `${result.started.replace("T", " ").replace("Z", " UTC")} · ${number(result.seconds)} s · scale ${result.scale} · ottla ${result.ottla}` }));
    if (result.partial) overview.append(make("p", { class: "notice", textContent: `This result is partial: ${result.partial}.` }));
    const rows = result.scenarios.flatMap((scenario) => headlines(result, scenario));
    if (rows.length > 0) overview.append(headlineTable(result, rows));
    if (result.scenarios.length > 1)
      overview.append(make("nav", {}, ...result.scenarios.map((scenario) => make("a", { href: `#${anchor(result, scenario)}`, textContent: scenario.title }))));
    report.append(overview);
    for (const scenario of result.scenarios) showScenario(result, scenario);
    report.append(machineSection(result));
  }

  const anchor = (result, scenario) => `${results.indexOf(result)}-${scenario.name.replace(/[^a-z0-9]+/gi, "-")}`;

  // The most significant figure of each scenario, with its published counterpart.
  function headlines(result, scenario) {
    if (scenario.points.length !== 1) return [];
    const point = scenario.points[0];
    const published = point.published.find((it) => Object.keys(it.figures).length > 0);
    const name = figures.map((it) => it.name).find((it) => (published ? it in published.figures : point.runs.some((run) => run.summaries[it])));
    if (!name) return [];
    return [{ scenario, point, name, published: published ? published.figures[name] : null }];
  }

  function headlineTable(result, rows) {
    const hasPublished = rows.some((row) => row.published !== null);
    const head = make("tr", {}, make("th", { textContent: "Scenario" }), ...result.targets.map((target) => make("th", { textContent: target.name })), ...(hasPublished ? [make("th", { textContent: "published" }), make("th", { class: "bar", textContent: "against published" })] : []));
    const body = rows.map(({ scenario, point, name, published }) => {
      const figure = known.get(name);
      const cells = result.targets.map((target) => {
        const run = point.runs.find((it) => it.target === target.name);
        return valueCell(run && run.summaries[name], figure);
      });
      const first = point.runs[0] && point.runs[0].summaries[name];
      const ratio = first && published ? first.median / published : null;
      const bar = make("td", { class: "bar" });
      if (ratio !== null) {
        const width = Math.min(100, 14 + 28 * Math.max(0, Math.log10(Math.max(ratio, 0.01)) + 1));
        bar.append(make("div", { textContent: `${number(ratio)} ×`, style: `background-size: ${width}% 100%` }));
      }
      return make("tr", {}, make("td", {}, make("a", { href: `#${anchor(result, scenario)}`, textContent: scenario.title }), make("div", { class: "soft small", textContent: figure ? figure.label : name })), ...cells, ...(hasPublished ? [make("td", { textContent: published === null ? "–" : number(published) }), bar] : []));
    });
    return make("div", { class: "table" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  }

  function valueCell(summary, figure) {
    const cell = make("td");
    if (!summary) { cell.textContent = "–"; return cell; }
    cell.append(number(summary.median));
    if (figure && figure.unit) cell.append(" ", make("span", { class: "unit", textContent: figure.unit }));
    if (summary.rounds > 1 && summary.median !== 0) {
      const spread = (summary.max - summary.min) / Math.abs(summary.median) / 2;
      cell.append(" ", make("span", { class: "spread", textContent: `±${spread < 0.0005 ? 0 : number(spread * 100)} %`, title: `${summary.rounds} rounds, ${number(summary.min)} to ${number(summary.max)}` }));
    }
    return cell;
  }

  // ---- a scenario ----

  function showScenario(result, scenario) {
    const section = make("section", { id: anchor(result, scenario) });
    section.append(make("h2", { textContent: scenario.title }), make("p", { class: "soft small", textContent: scenario.name }));
    if (scenario.question) section.append(make("p", { textContent: scenario.question }));
    if (scenario.differences.length > 0) section.append(make("p", { class: "notice", textContent: `Not as published: ${scenario.differences.join("; ")}.` }));
    for (const note of scenario.notes) section.append(make("p", { class: "notice", textContent: note }));
    if (scenario.published_on) section.append(make("p", { class: "soft small", textContent: `Published figures are of ${scenario.published_on}.` }));
    report.append(section);
    if (scenario.points.length === 0) { section.append(make("p", { textContent: "Nothing was measured." })); return; }
    section.append(pointTable(scenario));
    // A note that is shown beside the figures of one point is not repeated for another point
    // without different figures.
    const told = new Set(scenario.points.flatMap((point) => point.published.filter((it) => isToldApart(point, it)).map((it) => it.note)));
    const notes = [...new Set(scenario.points.flatMap((point) => point.published.map((it) => it.note)))].filter((it) => it && !told.has(it));
    for (const note of notes) section.append(make("p", { class: "soft", textContent: `Published: ${note}.` }));
    const plots = make("div", { class: "plots" });
    section.append(plots);
    for (const plot of scenario.plots) {
      if (plot.x === "time" || plot.x === "stored") overTime(plots, scenario, plot);
      else overSweep(plots, scenario, plot);
    }
    attempts(plots, scenario);
    roundPlots(section, scenario);
    section.append(make("details", {}, make("summary", { textContent: "The scenario's file" }), make("pre", { textContent: scenario.text })));
  }

  // Whether a note is shown beside each figure, to distinguish several publications; other notes
  // are shown below.
  const isToldApart = (point, published) => !!published.note && Object.keys(published.figures).some((name) => point.published.filter((it) => name in it.figures).length > 1);

  const OF_A_SWEEP = ["produce.records_per_second", "produce.mb_per_second", "produce.stored_mb_per_second", "produce.failed", "produce.lost", "consume.records_per_second", "consume.mb_per_second", "consume.stored_mb_per_second", "search.records_per_second", "delay_ms", "ack.p50_ms", "ack.p99_ms", "e2e.p50_ms", "e2e.p99_ms", "broker.cpu_seconds_per_gb"];

  // Figures that are omitted if they are 0.
  const SHOWN_AT_ZERO = ["produce.records_per_second", "produce.lost", "consume.records_per_second"];

  function pointTable(scenario) {
    const targets = scenario.points[0].runs.map((run) => run.target);
    const isSweep = scenario.points.length > 1;
    const hasPublished = scenario.points.some((point) => point.published.some((it) => Object.keys(it.figures).length > 0));
    const head = make("tr", {}, make("th", { textContent: isSweep ? "Point and figure" : "Figure" }), ...targets.map((target) => make("th", { textContent: target })), hasPublished ? make("th", { textContent: "published" }) : null, targets.length > 1 ? make("th", { textContent: "compared" }) : null);
    const body = [];
    for (const point of scenario.points) {
      if (isSweep) body.push(make("tr", { class: "point" }, make("td", { colSpan: targets.length + 1 + (hasPublished ? 1 : 0) + (targets.length > 1 ? 1 : 0), textContent: point.label })));
      for (const figure of figures) {
        const published = point.published.filter((it) => figure.name in it.figures);
        if (isSweep && published.length === 0 && !OF_A_SWEEP.includes(figure.name)) continue;
        const summaries = point.runs.map((run) => run.summaries[figure.name]);
        if (summaries.every((it) => !it || (it.max === 0 && !SHOWN_AT_ZERO.includes(figure.name))) && (published.length === 0 || figure.name === "produce.failed")) continue;
        const texts = published.map((it) => number(it.figures[figure.name]) + (isToldApart(point, it) ? ` (${it.note})` : ""));
        const row = make("tr", {}, make("td", { textContent: figure.label }), ...summaries.map((summary) => valueCell(summary, figure)), hasPublished ? make("td", {}, ...texts.map((text) => make("div", { class: "published", textContent: text }))) : null);
        if (targets.length > 1) row.append(comparisonCell(point, figure.name));
        body.push(row);
      }
    }
    return make("div", { class: scenario.points.length > 4 ? "table long" : "table" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  }

  function comparisonCell(point, name) {
    const cell = make("td");
    for (const it of point.comparisons.filter((comparison) => comparison.figure === name)) {
      const { ratio, low, high } = it.ratio;
      const end = (value) => (value < 0.01 ? "<0.01" : value > 100 ? ">100" : number(value));
      const interval = low === null || low === undefined ? "" : ` (${end(low)} to ${end(high)})`;
      cell.append(make("div", { class: it.verdict, textContent: `${it.second} ×${number(ratio)}${interval}, ${verdicts[it.verdict]}` }));
    }
    return cell;
  }

  // ---- plots over a sweep ----

  // Axis values as numbers: the values themselves, sizes, or positions of names.
  function axisOf(values) {
    if (values.every((value) => typeof value === "number")) return { numbers: values, ticks: null };
    const size = (value) => {
      const match = /^([\d.]+)\s*(KB|MB|GB|ms|s|min)$/i.exec(String(value));
      const factors = { kb: 1 / 1024, mb: 1, gb: 1024, ms: 0.001, s: 1, min: 60 };
      return match ? Number(match[1]) * factors[match[2].toLowerCase()] : null;
    };
    const sizes = values.map(size);
    if (sizes.every((value) => value !== null)) {
      const unit = /[KMG]B$/i.test(String(values[0])) ? "MB" : "s";
      return { numbers: sizes, ticks: null, unit };
    }
    return { numbers: values.map((_, index) => index), ticks: values.map((value, index) => [index, String(value)]) };
  }

  function overSweep(parent, scenario, plot) {
    const key = (value) => JSON.stringify(value);
    const values = [...new Map(scenario.points.filter((point) => plot.x in point.at).map((point) => [key(point.at[plot.x]), point.at[plot.x]])).values()];
    if (values.length < 2) return;
    if (values.every((value) => typeof value === "number")) values.sort((a, b) => a - b);
    const axis = axisOf(values);
    const groups = groupsOf(scenario, plot);
    const targets = scenario.points[0].runs.map((run) => run.target);
    const series = [];
    // Each measured line has its own colour; its trend and published figures have the same colour,
    // dashed.
    let colours = 0;
    for (const name of plot.y) for (const group of groups) for (const target of targets) {
      const at = (value) => scenario.points.find((point) => key(point.at[plot.x]) === key(value) && (group === null || group.holds(point)));
      const summaries = values.map((value) => {
        const point = at(value);
        const run = point && point.runs.find((it) => it.target === target);
        return (run && run.summaries[name]) || null;
      });
      if (summaries.every((it) => it === null)) continue;
      const figure = known.get(name);
      const parts = [];
      if (targets.length > 1) parts.push(target);
      if (plot.y.length > 1 || (targets.length === 1 && group === null)) parts.push(figure.label);
      if (group !== null) parts.push(group.label);
      const colour = colours++;
      const medians = summaries.map((it) => (it ? it.median : null));
      series.push({
        label: parts.join(", "), values: medians, colour, points: values.length <= 40, width: values.length > 40 ? 1.1 : 1.75,
        spreads: summaries.map((it) => (it && it.rounds > 1 ? [it.min, it.max] : null)),
      });
      if (plot.trend && values.length > 5) series.push({ label: `${parts.join(", ")}: trend`, values: trend(medians), colour, dash: [7, 4], width: 2 });
      const published = values.map((value) => {
        const point = at(value);
        const found = point && point.published.find((it) => name in it.figures);
        return found ? found.figures[name] : null;
      });
      if (published.some((it) => it !== null) && target === targets[0])
        series.push({ label: `published${group === null ? "" : `, ${group.label}`}`, values: published, colour, points: true, dash: [3, 4], width: 1 });
    }
    const figure = known.get(plot.y[0]);
    plotting.add(parent, {
      title: plot.title, series,
      x: { values: axis.numbers, ticks: axis.ticks, label: shortPath(plot.x) + (axis.unit ? `, ${axis.unit}` : ""), log: plot.logarithmic_x && !axis.ticks && axis.numbers.every((it) => it > 0), range: axis.ticks ? () => [-0.4, axis.numbers.length - 0.6] : undefined,
        show: axis.ticks ? (value) => (axis.ticks[Math.round(value)] || ["", ""])[1] : undefined },
      y: { label: figure.unit, log: plot.logarithmic_y && series.every((it) => it.values.every((value) => value === null || value > 0)) },
    });
  }

  // The lines of a plot: one for each value of its `by` sweep, and, if several points then remain
  // for one position, for each combination of the other swept values.
  function groupsOf(scenario, plot) {
    if (!plot.by) return [null];
    const value = (point, paths) => JSON.stringify(paths.map((path) => point.at[path]));
    const count = (paths) => new Set(scenario.points.map((point) => value(point, paths))).size;
    const paths = [plot.by];
    for (const path of Object.keys(scenario.points[0].at)) {
      if (count([plot.x, ...paths]) === scenario.points.length) break;
      if (path !== plot.x && count([...paths, path]) > count(paths)) paths.push(path);
    }
    const firsts = new Map();
    for (const point of scenario.points) if (!firsts.has(value(point, paths))) firsts.set(value(point, paths), point);
    return [...firsts].map(([own, first]) => ({
      label: paths.map((path) => `${shortPath(path)} ${first.at[path]}`).join(", "), holds: (point) => value(point, paths) === own,
    }));
  }

  // The median of the neighbours within a window of an eighth of the points.
  function trend(values) {
    const reach = Math.max(1, Math.round(values.length / 16));
    return values.map((_, index) => {
      const near = values.slice(Math.max(0, index - reach), index + reach + 1).filter((value) => value !== null).sort((a, b) => a - b);
      return near.length === 0 ? null : (near[(near.length - 1) >> 1] + near[near.length >> 1]) / 2;
    });
  }

  // ---- plots over the time of a round ----

  const middleRound = (run) => {
    const name = Object.keys(run.summaries)[0];
    const order = run.rounds.map((round, index) => [round.figures[name] ?? 0, index]).sort((a, b) => a[0] - b[0]);
    return order.length === 0 ? null : run.rounds[order[order.length >> 1][1]];
  };

  function overTime(parent, scenario, plot) {
    for (const point of scenario.points) for (const run of point.runs) {
      const round = middleRound(run);
      if (!round || round.series.length < 2) continue;
      const isStored = plot.x === "stored";
      const samples = round.series;
      const xs = samples.map((it) => (isStored ? it.stored_bytes / 1048576 : it.second));
      const series = plot.y.map((name, index) => {
        const isProduced = !name.startsWith("consume");
        const key = isProduced ? "produced_per_second" : "consumed_per_second";
        const group = isProduced ? "produce" : "consume";
        const isMb = name.endsWith("mb_per_second");
        const factor = isMb ? (round.figures[`${group}.mb_per_second`] ?? 0) / (round.figures[`${group}.records_per_second`] || 1) : 1;
        return { label: known.get(name).label, values: samples.map((it) => it[key] * factor), colour: index };
      });
      const title = plot.title + (point.runs.length > 1 ? `, ${run.target}` : "") + (point.label ? `, ${point.label}` : "");
      plotting.add(parent, { title, series, marks: isStored ? [] : round.marks, x: { values: xs, label: isStored ? "stored, MB" : "seconds" }, y: { label: known.get(plot.y[0]).unit } });
    }
  }

  function attempts(parent, scenario) {
    for (const point of scenario.points) for (const run of point.runs) {
      const all = run.rounds.flatMap((round) => round.attempts || []).sort((a, b) => a.offered - b.offered);
      if (all.length < 2) continue;
      const xs = all.map((it) => it.offered);
      const suffix = point.runs.length > 1 ? `, ${run.target}` : "";
      plotting.add(parent, {
        title: `Reached against offered rate${suffix}`, x: { values: xs, label: "offered, rec/s" }, y: { label: "rec/s" },
        series: [
          { label: "held", values: all.map((it) => (it.is_held ? it.reached : null)), colour: 2, points: true, width: 0 },
          { label: "not held", values: all.map((it) => (it.is_held ? null : it.reached)), colour: 4, points: true, width: 0 },
          { label: "offered", values: xs, colour: 5, dash: [4, 4], width: 1 },
        ],
      });
      const names = [["e2e_p50_ms", "p50"], ["e2e_p99_ms", "p99"], ["e2e_p99_9_ms", "p99.9"], ["e2e_max_ms", "max"]];
      const series = names.map(([key, label], index) => ({ label, values: all.map((it) => it[key] ?? null), colour: index, points: true })).filter((it) => it.values.some((value) => value !== null));
      if (series.length > 0) plotting.add(parent, { title: `End-to-end latency against rate${suffix}`, x: { values: xs, label: "offered, rec/s" }, y: { label: "ms", log: true }, series });
    }
  }

  // ---- percentile curves and time series of a chosen point ----

  function roundPlots(section, scenario) {
    const candidates = scenario.points.filter((point) => point.runs.some((run) => Object.keys(run.curves).length > 0 || run.rounds.some((round) => round.series.length > 1)));
    if (candidates.length === 0) return;
    const chooser = make("div", { class: "chooser" });
    const plots = make("div", { class: "plots" });
    const points = make("select", { title: "The point" }, ...candidates.map((point, index) => make("option", { value: String(index), textContent: point.label || scenario.title })));
    const rounds = make("select", { title: "The round" });
    const redraw = () => { plots.replaceChildren(); roundPlotsOf(plots, candidates[Number(points.value)], Number(rounds.value)); };
    const fillRounds = () => {
      const count = Math.max(...candidates[Number(points.value)].runs.map((run) => run.rounds.length));
      rounds.replaceChildren(...Array.from({ length: count }, (_, index) => make("option", { value: String(index), textContent: `round ${index + 1} of ${count}` })));
      redraw();
    };
    points.onchange = fillRounds;
    rounds.onchange = redraw;
    chooser.append(make("h3", { textContent: "One round in detail" }), ...(candidates.length > 1 ? [points] : []), rounds);
    section.append(chooser, plots);
    fillRounds();
  }

  function roundPlotsOf(parent, point, roundIndex) {
    percentiles(parent, point);
    for (const run of point.runs) {
      const round = run.rounds[roundIndex];
      if (!round || round.series.length < 2) continue;
      const suffix = point.runs.length > 1 ? `, ${run.target}` : "";
      const xs = round.series.map((it) => it.second);
      const column = (key) => round.series.map((it) => it[key] ?? null);
      const some = (values) => values.some((value) => value !== null && value !== 0);
      const lines = (entries) => entries.map(([key, label, colour]) => ({ label, values: column(key), colour })).filter((it) => some(it.values));
      const rates = lines([["produced_per_second", "produced", 0], ["consumed_per_second", "consumed", 1]]);
      if (rates.length > 0) plotting.add(parent, { title: `Rate over time${suffix}`, series: rates, x: { values: xs, label: "seconds" }, y: { label: "rec/s" }, marks: round.marks });
      const perSecond = (key) => column(key).map((value, index) => (value === null ? null : value / (xs[index] - (index > 0 ? xs[index - 1] : xs[0] - (xs[1] - xs[0])))));
      const marks = [...round.marks, ...burstsOf(xs, perSecond("voluntary_switches"), perSecond("involuntary_switches"))];
      const latencies = lines([["ack_p50_ms", "acknowledged p50", 0], ["ack_p99_ms", "acknowledged p99", 1], ["ack_max_ms", "acknowledged max", 4], ["e2e_p99_ms", "end to end p99", 2], ["e2e_max_ms", "end to end max", 3]]);
      if (latencies.length > 0) {
        const disk = column("disk_utilisation");
        // A single long wait would press every other line onto the axis.
        const shown = latencies.flatMap((it) => it.values).filter((value) => value > 0);
        const isWide = Math.max(...shown) > 50 * Math.min(...shown);
        const options = { title: `Latency over time${suffix}`, series: latencies, x: { values: xs, label: "seconds" }, y: { label: "ms", log: isWide }, marks };
        if (some(disk)) {
          options.series = [...latencies, { label: "disk busy, %", values: disk.map((it) => (it === null ? null : it * 100)), colour: 5, scale: "y2", width: 1, dash: [2, 3] }];
          options.y2 = { label: "% busy", range: [0, 105] };
        }
        plotting.add(parent, options);
      }
      const switches = [{ label: "voluntary", values: perSecond("voluntary_switches"), colour: 6 }, { label: "involuntary", values: perSecond("involuntary_switches"), colour: 4 }].filter((it) => some(it.values));
      if (switches.length > 0) plotting.add(parent, { title: `Context switches of the broker${suffix}`, series: switches, x: { values: xs, label: "seconds" }, y: { label: "a second" }, height: 200 });
    }
  }

  // Intervals with more than twice the median number of context switches of the broker's threads.
  function burstsOf(xs, voluntary, involuntary) {
    const all = voluntary.map((value, index) => (value === null ? null : value + (involuntary[index] ?? 0)));
    const sorted = all.filter((value) => value !== null).sort((a, b) => a - b);
    const usual = sorted[sorted.length >> 1];
    if (!usual) return [];
    return xs.flatMap((second, index) => (all[index] > 2 * usual ? [{ second, kind: "switches", what: `${number(all[index])} context switches a second` }] : []));
  }

  const CURVES = [["ack", "acknowledged", 0], ["ack_from_send", "acknowledged, since sent", 0], ["e2e", "end to end", 2], ["e2e_from_send", "end to end, since sent", 2]];

  function percentiles(parent, point) {
    const lines = [];
    point.runs.forEach((run, target) => {
      for (const [name, label, colour] of CURVES) {
        const curve = run.curves[name];
        if (!curve) continue;
        const suffix = point.runs.length > 1 ? `${run.target}: ` : "";
        lines.push({ label: suffix + label, colour: (colour + target) % 8, dash: name.endsWith("_send") ? [5, 4] : undefined, points: curve.points });
      }
    });
    if (lines.length === 0) return;
    const most = Math.max(...lines.map((line) => line.points.length > 1 ? 1 / (1 - line.points[line.points.length - 2][0]) : 1));
    const place = (quantile) => (quantile >= 1 ? most * 1.5 : 1 / (1 - quantile));
    const xs = [...new Set(lines.flatMap((line) => line.points.map(([quantile]) => place(quantile))))].sort((a, b) => a - b);
    const series = lines.map((line) => {
      const at = new Map(line.points.map(([quantile, value]) => [place(quantile), Math.max(value / 1000, 0.001)]));
      return { label: line.label, colour: line.colour, dash: line.dash, values: xs.map((x) => at.get(x) ?? null) };
    });
    const ticks = [[1, "0 %"], [2, "50 %"], [10, "90 %"], [100, "99 %"], [1000, "99.9 %"], [1e4, "99.99 %"], [1e5, "99.999 %"], [1e6, "99.9999 %"], [1e7, "99.99999 %"]].filter(([x]) => x <= most * 1.5);
    const show = (x) => (x === null || x === undefined ? "–" : x >= most * 1.5 ? "max" : `${Number(((1 - 1 / x) * 100).toFixed(5))} %`);
    plotting.add(parent, { title: "Latency by percentile", series, x: { values: xs, label: "percentile", log: true, ticks, show, range: (_, low, high) => [1, high] }, y: { label: "ms", log: true } });
  }

  // ---- the machine and the command ----

  function machineSection(result) {
    const machine = result.machine;
    const rows = [
      ["processor", machine.processor], ["cores", machine.cores], ["memory", quantity(machine.memory_mb * 1048576)], ["kernel", machine.kernel],
      ["loopback", `${number(machine.loopback_mb_per_second)} MB/s`], ["disk", `${number(machine.disk_mb_per_second)} MB/s`], ["disk sync", `${number(machine.disk_sync_ms)} ms`],
      ["CRC-32C", `${number(machine.crc32c_gb_per_second)} GB/s`], ["clock", `${number(machine.clock_ns)} ns`], ["the same work varies by", percent(machine.noise)],
      ["longest stall of a core", `${number(machine.longest_stall_ms)} ms`], ["time lost in stalls", percent(machine.stalled)],
      ...result.targets.map((target) => [`round trip to ${target.name}`, `${number(target.round_trip_us)} µs`]),
      ...result.targets.filter((target) => target.network_mb_per_second).map((target) => [`network to ${target.name}`, `${number(target.network_mb_per_second)} MB/s`]),
    ];
    const list = make("div", { class: "machine" }, ...rows.map(([name, value]) => make("div", {}, make("span", { class: "soft", textContent: name }), make("b", { textContent: String(value) }))));
    return make("section", {}, make("h2", { textContent: "Machine, noise and how to repeat it" }), list, make("p", { class: "small", textContent: "A difference below the noise is reported as none. Repeat the run with:" }), make("pre", { textContent: result.command }));
  }

  page();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plotting.redrawAll());
  // Plots are drawn in the first frame, so counting what was drawn waits for it.
  if (location.hash === "#check") requestAnimationFrame(() => setTimeout(plotting.check, 50));
})();
