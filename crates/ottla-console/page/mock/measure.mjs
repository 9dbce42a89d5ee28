// Results of `ottla bench`, and a run that ends after some seconds, or when it is stopped.

const head = { ottla: "0.1.0", command: "ottla bench run rate-ladder/write --scale small", seconds: 94.2, scale: "small" };
const targets = [{ name: "ottla", description: "Ottla 0.1.0" }, { name: "kafka", description: "Apache Kafka 4.3.1" }];
const machine = { processor: "Mock 9000", cores: 8, memory_mb: 32_768, kernel: "6.12", noise: 0.021 };

const curve = (base) => {
  const points = [];
  for (let left = 1; left > 1e-5; left /= 2) for (let step = 0; step < 5; step += 1) points.push([1 - left * (1 - step / 10), base * (1 + 0.4 * -Math.log10(left * (1 - step / 10)))]);
  return { count: 200_000, mean_us: base * 1.2, points: [...points, [1, base * 9]] };
};
const summary = (median) => ({ median, min: median * 0.96, max: median * 1.05, rounds: 3 });
const runs = (rate, faster) =>
  targets.map(({ name }, index) => {
    const slow = (index === 0 ? 1 : 3) * faster;
    return { target: name, summaries: { "produce.records_per_second": summary(rate), "produce.mb_per_second": summary(rate / 10_000), "ack.p50_ms": summary(0.9 * slow), "ack.p99_ms": summary(4.2 * slow) }, curves: { ack: curve(900 * slow) } };
  });
const result = (started, faster, partial = null) => ({
  ...head, started, partial, machine, targets,
  scenarios: [{ name: "rate-ladder/write", title: "Delay at each rate", question: "How late are records at each rate?", differences: ["1 replica instead of 3"], notes: [], points: [50_000, 100_000].map((rate) => ({ label: `${rate / 1000} k records/s`, published: [], comparisons: [], runs: runs(rate, faster) })) }],
});
const results = new Map([
  ["rate-ladder-write-20261121T204504Z", result("2026-11-21T20:45:04Z", 1)],
  ["rate-ladder-write-20261120T101500Z", result("2026-11-20T10:15:00Z", 1.4)],
  ["rate-ladder-write-20261119T080000Z", result("2026-11-19T08:00:00Z", 1.5, "interrupted")],
]);
const scenarios = [{ name: "rate-ladder/write", title: "Delay at each rate" }, { name: "sla-search/under-a-limit", title: "The highest rate under a latency limit" }];
const STEPS = 40;
let run = null;

const shown = ({ scenario, started, state, progress, result, is_ok }) => ({ scenario, started, state, progress, result, is_ok });

function start(scenario) {
  run = { scenario, started: Date.now(), state: "running", progress: "12,000 rec/s, p99 3.1 ms, 8 s left", result: null, is_ok: null, lines: ["The machine: Mock 9000, 8 cores"], step: 0 };
  const mine = run;
  const timer = setInterval(() => {
    mine.step += 1;
    if (mine.step % 5 === 0) mine.lines.push(`round ${mine.step / 5}: 50,000 rec/s`);
    if (mine.state === "running" && mine.step < STEPS) return;
    clearInterval(timer);
    const name = `run-${mine.started}`;
    results.set(name, result(new Date(mine.started).toISOString(), 1, mine.state === "stopping" ? "interrupted" : null));
    mine.lines.push(`ottla-bench/${name}.json`);
    Object.assign(mine, { is_ok: mine.state === "running", state: "ended", progress: null, result: name });
  }, 200);
}

function follow(response) {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const mine = run;
  let seen = 0;
  const send = (event, data) => response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  const look = () => {
    if (mine.lines.length > seen) send("lines", mine.lines.slice(seen));
    seen = mine.lines.length;
    const isOver = mine.state === "ended";
    send(isOver ? "done" : "progress", shown(mine));
    if (!isOver) return;
    clearInterval(timer);
    response.end();
  };
  const timer = setInterval(look, 100);
  response.on("close", () => clearInterval(timer));
}

/** The answer to a request below `/api/measure`; `undefined` for 204. `refuse` throws. */
export function measure(method, [what, name, part], parameters, body, response, { isReadOnly, refuse }) {
  switch (`${method} ${what ?? ""}`) {
    case "GET ":
      return { dir: "ottla-bench", refusal: isReadOnly ? "this console is in read-only mode; start it without --read-only to run benchmarks" : null, scenarios, run: run && shown(run) };
    case "GET results": {
      if (name === undefined) return { items: [...results].map(([name, it]) => ({ name, modified: Date.now(), has_report: true, started: it.started, seconds: it.seconds, partial: it.partial, scale: it.scale, targets: it.targets, scenarios: it.scenarios })).sort((a, b) => (a.started < b.started ? 1 : -1)) };
      const found = results.get(name) ?? refuse(404, `there is no ${name}.json in ottla-bench`);
      if (part === undefined) return found;
      response.writeHead(200, { "content-type": "text/html", "content-disposition": `attachment; filename="${name}.html"` });
      response.end("<p>report</p>");
      return response;
    }
    case "GET comparison":
      return { text: `  medians of the rounds    first  second  ratio  95 % interval  verdict\nrate-ladder/write\n  acknowledged, p99, ms     5.88    4.20  x0.71  0.66 to 0.77   better\n` };
    case "POST run":
      if (run && run.state !== "ended") refuse(409, "a run of ottla bench is in progress; wait for its end, or stop it");
      if (body.repetitions !== null && body.repetitions > 100) refuse(422, `repetitions=${body.repetitions}: give 1 to 100, or nothing for the scenario's`, null, "repetitions");
      start(body.scenario);
      return shown(run);
    case "DELETE run":
      run.state = "stopping";
      return undefined;
    case "GET run":
      follow(response);
      return response;
  }
  return refuse(404, `${method} /api/measure/${what}: no such path`);
}
