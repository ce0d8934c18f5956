// Opens a page at two widths, light and dark, and prints what the browser said of it as JSON.
// node --experimental-websocket page_browser.js BROWSER PROFILE PAGE AXE FLAGS…
const { spawn } = require("node:child_process");
const { readFileSync } = require("node:fs");
const [browser, profile, page, axe, ...flags] = process.argv.slice(2);
const child = spawn(browser, [...flags, `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
const address = new Promise((found, failed) => {
  let text = "";
  child.stderr.on("data", (part) => {
    text += part;
    const match = text.match(/DevTools listening on (ws:\S+)/);
    if (match) found(match[1]);
  });
  child.on("exit", () => failed(new Error(`the browser ended: ${text}`)));
});
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
(async () => {
  const socket = new WebSocket(await address);
  await new Promise((done) => socket.addEventListener("open", done));
  const waiting = new Map(), events = [];
  let last = 0;
  socket.addEventListener("message", ({ data }) => {
    const message = JSON.parse(data);
    if (message.id) { waiting.get(message.id)(message); waiting.delete(message.id); } else events.push(message);
  });
  const call = (method, params = {}, sessionId = undefined) => new Promise((done, failed) => {
    waiting.set(++last, (m) => m.error ? failed(new Error(`${method}: ${m.error.message}`)) : done(m.result));
    socket.send(JSON.stringify({ id: last, method, params, sessionId }));
  });
  const results = [];
  for (const width of [400, 1280]) for (const scheme of ["light", "dark"]) {
    const { targetId } = await call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
    const here = (method, params) => call(method, params, sessionId);
    const value = async (expression) => {
      const { result, exceptionDetails } = await here("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
      if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
      return result.value;
    };
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await here(`${domain}.enable`);
    await here("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: width < 600 });
    await here("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    events.length = 0;
    await here("Page.navigate", { url: page });
    for (let i = 0; i < 600 && (await value("document.readyState + location.protocol")) !== "completefile:"; i++) await wait(100);
    await wait(300);
    const mine = events.filter((event) => event.sessionId === sessionId);
    const errors = mine.filter((event) => event.method === "Runtime.exceptionThrown"
      || (event.method === "Runtime.consoleAPICalled" && ["error", "warning"].includes(event.params.type))
      || (event.method === "Log.entryAdded" && ["error", "warning"].includes(event.params.entry.level)));
    const requests = mine.filter((event) => event.method === "Network.requestWillBeSent").map((event) => event.params.request.url);
    const seen = {
      width, scheme, errors: errors.map((event) => event.params), requests,
      overflow: await value("document.documentElement.scrollWidth - innerWidth"),
      background: await value("getComputedStyle(document.body).backgroundColor"),
      evil: await value("window.evil ?? null"),
      units: await value("document.querySelectorAll('.units li').length"),
    };
    seen.found = await value(`(() => {
      const find = document.querySelector("#find");
      find.value = document.querySelector(".units .name").textContent;
      find.dispatchEvent(new Event("input", { bubbles: true }));
      return document.querySelectorAll(".units li:not([hidden])").length;
    })()`);
    seen.opened = await value(`new Promise((done) => {
      const link = document.querySelector(".links a");
      link.click();
      setTimeout(() => done(document.querySelector(link.getAttribute("href")).querySelector("details").open), 200);
    })`);
    await value(readFileSync(axe, "utf8") + "; true");  // by the debugger, which no policy of the page stops
    await value("document.querySelectorAll('details').forEach((each) => { each.open = true; })");
    const report = await value("axe.run(document, { resultTypes: ['violations'] }).then((r) => JSON.stringify(r.violations.map((v) => ({ id: v.id, impact: v.impact, nodes: v.nodes.slice(0, 3).map((n) => n.html) }))))");
    seen.violations = JSON.parse(report);
    results.push(seen);
    await call("Target.closeTarget", { targetId });
  }
  console.log(JSON.stringify(results));
  await call("Browser.close");
  process.exit(0);
})().catch((error) => { console.error(error); child.kill(); process.exit(1); });
