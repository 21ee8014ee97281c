// Draws the state that the server sends. Texts come from users and go only into text nodes and attributes, never into markup.
"use strict";

const RETRY_MS = 5000;
const MOST_AGENTS_DRAWN = 16; // more are one box for each switch
const MOST_CELLS = 256; // with more ranks, the rows of a job show counts, and ranks when they are opened
const MOST_ROWS = 32; // with more agents, a row of a job stands for a switch
const SILENCE_MS = Math.max(5000, 4000 * Number(byId("state").dataset.interval));

const SVG = "http://www.w3.org/2000/svg";
let received = Date.now(); // when the latest state came
let connectionTrouble = "";
let drawingTrouble = "";
let latest = null;

function byId(id) {
  return document.getElementById(id);
}

/** Return an element with attributes and children, which are elements or texts. */
function make(tag, attributes = {}, ...children) {
  const element = attributes.xmlns ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name !== "xmlns") element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function svg(tag, attributes = {}, ...children) {
  return make(tag, { xmlns: SVG, ...attributes }, ...children);
}

/** Give a parent one child for each item, in order. Children of items that were there before are kept. */
function fill(parent, items, key, create, update) {
  const present = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  items.forEach((item, place) => {
    const name = String(key(item));
    let child = present.get(name);
    if (child === undefined) {
      child = create(item);
      child.dataset.key = name;
    }
    present.delete(name);
    update(child, item);
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
  });
  present.forEach((child) => child.remove());
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

function count(number) {
  return number.toLocaleString("en-US");
}

function many(number, what) {
  return `${count(number)} ${what}${number === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;
}

function rate(bytes) {
  for (const [unit, size] of [["GB/s", 1e9], ["MB/s", 1e6]]) {
    if (bytes >= size) return `${(bytes / size).toFixed(bytes >= 100 * size ? 0 : 1)} ${unit}`;
  }
  return bytes ? `${(bytes / 1e3).toFixed(1)} kB/s` : "";
}

function duration(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString("en-GB");
}

function rankOf([rank, state, agent, chunks, behind, bytes, again, microseconds]) {
  return { rank, state, agent, chunks, behind, bytes, again, microseconds };
}

// ---- the tree -------------------------------------------------------------------------------------------------------

/** Return what the links carry: from each agent the rates of its ranks, and from a switch one sum for each job. */
function linkRates(state) {
  const parents = new Map(state.switches.map((each) => [each.name, each.parent]));
  const agents = state.agents.map(() => 0);
  const switches = new Map(state.switches.map((each) => [each.name, 0]));
  for (const job of state.jobs) {
    const members = new Set(job.switches);
    const passed = new Set();
    for (const { agent, bytes } of job.ranks) {
      if (agent < 0) continue;
      agents[agent] += bytes;
      for (let name = state.agents[agent].switch; name && members.has(parents.get(name)); name = parents.get(name)) {
        passed.add(name);
      }
    }
    passed.forEach((name) => switches.set(name, (switches.get(name) ?? 0) + job.rate));
  }
  return { agents, switches };
}

/** Return the boxes of a tree: switches, and below them agents or one box for many; each has its parent's key. */
function boxesOf(state) {
  const rates = linkRates(state);
  const ranks = state.agents.map(() => ({ all: 0, lost: 0 }));
  for (const { agent, state: its } of state.jobs.flatMap((job) => job.ranks)) {
    if (agent < 0) continue;
    ranks[agent].all += 1;
    ranks[agent].lost += its === "LOST";
  }
  const boxes = state.switches.map((each) => ({
    key: `s ${each.name}`, above: each.parent ? `s ${each.parent}` : "", kind: "switch", name: each.name,
    small: each.connected ? `${count(each.slots - each.free)} slots used` : "not connected",
    bad: !each.connected, rate: rates.switches.get(each.name) ?? 0,
  }));
  const leaf = (key, above, name, places) => {
    const all = places.reduce((sum, place) => sum + ranks[place].all, 0);
    const lost = places.reduce((sum, place) => sum + ranks[place].lost, 0);
    const gone = places.filter((place) => !state.agents[place].live).length;
    const small = gone ? (places.length > 1 ? `${gone} gone` : "gone") : lost ? `${lost} of ${count(all)} lost` : many(all, "rank");
    const sum = places.reduce((total, place) => total + rates.agents[place], 0);
    return { key, above: `s ${above}`, kind: "agent", name, small, bad: gone + lost > 0, rate: sum };
  };
  if (state.agents.length <= MOST_AGENTS_DRAWN) {
    state.agents.forEach((agent, place) => boxes.push(leaf(`a ${agent.name}`, agent.switch, agent.name, [place])));
  } else {
    Map.groupBy(state.agents.keys(), (place) => state.agents[place].switch).forEach((places, name) => {
      boxes.push(leaf(`a of ${name}`, name, many(places.length, "agent"), places));
    });
  }
  return boxes;
}

/** Give each box a place: x in columns, y in levels; a parent is above the middle of its children. */
function arrange(boxes) {
  const below = Map.groupBy(boxes, (box) => box.above);
  const known = new Set(boxes.map((box) => box.key));
  let columns = 0;
  let levels = 0;
  const seen = new Set();
  const put = (box, level) => {
    if (seen.has(box.key)) return;
    seen.add(box.key);
    const children = below.get(box.key) ?? [];
    children.forEach((child) => put(child, level + 1));
    box.level = level;
    box.column = children.length ? (children[0].column + children.at(-1).column) / 2 : columns++;
    levels = Math.max(levels, level + 1);
  };
  boxes.filter((box) => !known.has(box.above)).forEach((box) => put(box, 0));
  const lowest = levels - 1;
  boxes.filter((box) => box.kind === "agent").forEach((box) => { box.level = lowest; });
  return { columns, levels };
}

function drawTree(state) {
  const boxes = boxesOf(state);
  const { columns, levels } = arrange(boxes);
  const tree = byId("tree");
  if (!boxes.length) {
    tree.replaceChildren(make("p", { class: "none" }, "The controller's configuration has no switch."));
    delete tree.dataset.signature; // of the drawing that this replaces: the same tree is drawn again when it comes back
    return;
  }
  const step = Math.max(100, 840 / columns);
  const [width, height, boxWidth, boxHeight] = [step * columns, 92 * levels - 40, Math.min(step - 8, 128), 40];
  const center = (box) => [step * (box.column + 0.5), 92 * box.level + boxHeight / 2 + 2];
  const signature = JSON.stringify(boxes.map((box) => [box.key, box.column, box.level]));
  if (tree.dataset.signature !== signature) {
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "tree of switches and agents" });
    drawing.style.minWidth = `${Math.min(width, 72 * columns)}px`;
    drawing.style.maxHeight = "420px";
    drawing.append(svg("g", { id: "links" }), svg("g", { id: "boxes" }), svg("g", { id: "rates" }));
    tree.replaceChildren(drawing);
    tree.dataset.signature = signature;
  }
  const places = new Map(boxes.map((box) => [box.key, center(box)]));
  const links = boxes.filter((box) => places.has(box.above));
  fill(byId("links"), links, (box) => box.key, () => svg("line"), (line, box) => {
    const [[x1, y1], [x2, y2]] = [places.get(box.key), places.get(box.above)];
    const wide = box.rate ? Math.min(11, Math.max(2, 2 + 1.6 * Math.log10(box.rate / 1e5))) : 1.2;
    const place = { x1, y1, x2, y2, "stroke-width": wide, class: box.rate ? "busy" : "" };
    Object.entries(place).forEach(([name, value]) => line.setAttribute(name, value));
  });
  const newBox = (box) => {
    const [x, y] = places.get(box.key);
    const corner = { x: x - boxWidth / 2, y: y - boxHeight / 2, width: boxWidth, height: boxHeight, rx: 6 };
    const [upper, lower] = [svg("text", { x, y: y - 3 }), svg("text", { x, y: y + 12, class: "small" })];
    return svg("g", {}, svg("title"), svg("rect", corner), upper, lower);
  };
  fill(byId("boxes"), boxes, (box) => box.key, newBox, (group, box) => {
    group.setAttribute("class", box.kind + (box.bad ? " bad" : ""));
    const [title, , upper, lower] = group.children;
    setText(title, `${box.name}: ${box.small}`);
    const most = Math.floor(boxWidth / 7.2);
    setText(upper, box.name.length > most ? `${box.name.slice(0, most - 1)}…` : box.name);
    setText(lower, box.small);
  });
  const newRate = (box) => {
    const [[x1, y1], [x2, y2]] = [places.get(box.key), places.get(box.above)];
    return svg("text", { x: x1 + 0.32 * (x2 - x1), y: y1 + 0.42 * (y2 - y1) + 2, class: "rate" });
  };
  fill(byId("rates"), links, (box) => box.key, newRate, (text, box) => setText(text, rate(box.rate)));
}

// ---- jobs -----------------------------------------------------------------------------------------------------------

function newJob() {
  return make("div", { class: "job" }, make("div", { class: "title" },
    make("h3"), make("span", { class: "state" }), make("span", { class: "dim" }), make("span", { class: "lagging" })),
  make("p", { class: "failure" }), make("p", { class: "lagging" }), make("div"));
}

function drawJob(element, job, state, folded) {
  const [title, failure, change, rows] = element.children;
  const [name, its, figures, lagging] = title.children;
  setText(name, job.name);
  setText(its, job.state);
  setClass(its, `state ${job.state}`);
  const again = job.again ? `, ${(100 * job.again).toFixed(1)}% retransmitted` : "";
  const on = job.switches.length ? ` on ${job.switches.join(", ")}` : "";
  setText(figures, `${many(job.ranks.length, "rank")}${on}, ${rate(job.rate) || "idle"}${again}, ${duration(job.age)}`);
  const last = job.ranks.find((rank) => rank.rank === job.straggler);
  setText(lagging, last ? `rank ${last.rank} is ${many(last.behind, "chunk")} behind` : "");
  setText(failure, job.failure);
  failure.hidden = !job.failure;
  setText(change, job.change ? `continues: ${job.change}` : "");
  change.hidden = !job.change;
  const agents = Map.groupBy(job.ranks, (rank) => rank.agent);
  const named = (place) => state.agents[place] ?? { name: "an agent that is gone", host: "", switch: "" };
  const groups = agents.size <= MOST_ROWS
    ? Array.from(agents, ([place, ranks]) => ({ name: named(place).name, host: named(place).host, ranks }))
    : Array.from(Map.groupBy(job.ranks, (rank) => named(rank.agent).switch),
      ([name, ranks]) => ({ name: name || "no switch", host: "", ranks }));
  fill(rows, groups, (group) => `${folded} ${group.name}`, () => newGroup(folded), (row, group) => {
    (folded ? drawFolded : drawGroup)(row, group, job, named);
  });
}

function newGroup(folded) {
  const cells = make("div", { class: "cells" });
  if (!folded) return make("div", { class: "group" }, make("span", { class: "name" }), cells, make("span", { class: "figure" }));
  const summary = make("summary", {}, make("span", { class: "name" }), make("span", { class: "dim" }),
    make("span", { class: "lost" }), make("span", { class: "lagging" }), make("span", { class: "figure" }));
  const details = make("details", { class: "group" }, summary, cells);
  details.addEventListener("toggle", () => draw(latest)); // ranks are drawn only in an open row
  return details;
}

/** Return what a row's ranks send together. */
function sumOf(ranks) {
  return ranks.reduce((sum, rank) => sum + rank.bytes, 0);
}

function drawGroup(row, group, job, named) {
  const [name, cells, figure] = row.children;
  setText(name, group.name);
  name.title = group.host ? `${group.name} on ${group.host}` : group.name;
  drawCells(cells, group.ranks, job, named);
  setText(figure, rate(sumOf(group.ranks)));
}

function drawFolded(row, group, job, named) {
  const [summary, cells] = row.children;
  const [name, states, lost, lagging, figure] = summary.children;
  setText(name, group.name);
  const byState = Map.groupBy(group.ranks, (rank) => rank.state);
  setText(states, Array.from(byState, ([its, ranks]) => `${count(ranks.length)} ${its.toLowerCase()}`).join(", "));
  const numbers = (byState.get("LOST") ?? []).map((rank) => rank.rank);
  setText(lost, numbers.length ? `lost: ${numbers.slice(0, 8).join(", ")}${numbers.length > 8 ? ", …" : ""}` : "");
  lost.hidden = !numbers.length;
  const last = group.ranks.find((rank) => rank.rank === job.straggler);
  setText(lagging, last ? `rank ${last.rank} lags` : "");
  setText(figure, rate(sumOf(group.ranks)));
  drawCells(cells, row.open ? group.ranks : [], job, named);
}

function drawCells(cells, ranks, job, named) {
  fill(cells, ranks, (rank) => rank.rank, (rank) => make("span", {}, String(rank.rank)), (cell, rank) => {
    setClass(cell, `cell ${rank.state}${rank.rank === job.straggler ? " straggler" : ""}`);
    const agent = named(rank.agent);
    cell.title = `rank ${rank.rank}: ${rank.state} at ${agent.name}${agent.host ? ` on ${agent.host}` : ""}\n`
      + `${many(rank.chunks, "chunk")}, ${count(rank.behind)} behind, ${rate(rank.bytes) || "idle"}\n`
      + `${count(rank.again)} packets/s sent again, round trip ${count(rank.microseconds)} us`;
  });
}

// ---- switches and events --------------------------------------------------------------------------------------------

function drawSwitch(row, each) {
  setClass(row, each.connected ? "" : "bad");
  const [name, slots, drops] = row.children;
  setText(name, each.name);
  setText(slots, each.connected ? `${count(each.free)} of ${count(each.slots)}` : "");
  const dropped = each.drops.map(([why, packets, perSecond]) =>
    `${why.replaceAll("_", " ")} ${count(packets)}${perSecond ? ` (${count(perSecond)}/s)` : ""}`);
  setText(drops, each.connected ? dropped.join(", ") || "none" : each.failure);
}

function drawEvent(item, event) {
  setClass(item, event.level);
  const [time, kind, rest] = item.children;
  setText(time, clock(event.time));
  setText(kind, event.kind);
  setText(rest, [event.about, event.detail].filter(Boolean).map((text, place) => (place || !event.about ? `: ${text}` : ` ${text}`)).join(""));
}

// ---- all of it ------------------------------------------------------------------------------------------------------

/** Draw a state. That it cannot be drawn is shown, because what stays of an earlier one would look live. */
function draw(state) {
  latest = state;
  try {
    drawState(state);
    drawingTrouble = "";
  } catch (error) {
    drawingTrouble = `This page cannot show the latest state: load it again. The cause is a defect in SwitchML: ${error}`;
    reportError(error); // on the console
  }
  drawTrouble();
}

function drawState(state) {
  const ranks = state.jobs.reduce((sum, job) => sum + job.ranks.length, 0);
  const parts = [many(state.switches.length, "switch"), many(state.agents.length, "agent"), many(state.jobs.length, "job"), many(ranks, "rank")];
  setText(byId("summary"), parts.join(", "));
  setText(byId("clock"), clock(state.time));
  drawTree(state);
  const jobs = byId("jobs");
  if (state.jobs.length) {
    if (jobs.firstElementChild?.matches(".none")) jobs.replaceChildren();
    fill(jobs, state.jobs, (job) => job.key, newJob, (element, job) => drawJob(element, job, state, ranks > MOST_CELLS));
  } else if (!jobs.firstElementChild?.matches(".none")) {
    jobs.replaceChildren(make("p", { class: "none" }, "No job runs."));
  }
  const newRow = () => make("tr", {}, make("td"), make("td"), make("td"));
  fill(byId("switches"), state.switches, (each) => each.name, newRow, drawSwitch);
  const newItem = () => make("li", {}, make("time"), make("span", { class: "kind" }), make("span"));
  fill(byId("events"), state.events.toReversed(), (event) => event.number, newItem, drawEvent);
}

function drawTrouble() {
  const silent = Date.now() - received;
  const old = silent > SILENCE_MS ? `No news for ${Math.round(silent / 1000)} s: the controller does not answer.` : "";
  const away = latest.away ? `The controller is away, and is asked again: ${latest.away}` : "";
  const text = connectionTrouble || drawingTrouble || away || old;
  setText(byId("trouble"), text);
  byId("trouble").hidden = !text;
  document.body.classList.toggle("stale", Boolean(text));
}

function take(text) {
  const state = JSON.parse(text);
  for (const job of state.jobs) job.ranks = job.ranks.map(rankOf);
  received = Date.now();
  draw(state);
}

/** Follow the server's events. A browser connects again by itself after a lost connection, but not after a refusal. */
function follow() {
  const source = new EventSource("events");
  source.onmessage = (event) => {
    connectionTrouble = "";
    take(event.data);
  };
  source.onerror = async () => {
    connectionTrouble = "The server of this page does not answer; it is asked again. Does `switchml-ctl top --web` still run?";
    if (source.readyState === EventSource.CLOSED) {
      connectionTrouble = (await refusal()) || connectionTrouble;
      setTimeout(follow, RETRY_MS);
    }
    drawTrouble();
  };
}

/** Return why the server refuses the events, or an empty text. */
async function refusal() {
  const control = new AbortController();
  try {
    const answer = await fetch("events", { signal: control.signal });
    return answer.ok ? "" : await answer.text();
  } catch {
    return "";
  } finally {
    control.abort();
  }
}

take(byId("state").textContent);
setInterval(drawTrouble, 1000);
follow();
