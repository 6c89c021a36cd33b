
"use strict";
// Keeps the page up to date from facts.json. What comes is text and stays text: nothing here makes markup of it.
const PAUSE = 2000;
const by = (name) => document.getElementById(name);
const put = (node, text) => { if (node && node.textContent !== text) node.textContent = text; };
const tone = (node, kind, value) => { const name = `${kind} ${value}`.trim(); if (node.className !== name) node.className = name; };
const point = (node, whole) => { if (whole) node.title = whole; else node.removeAttribute("title"); };

const cell = (value, column) => {
  const node = document.createElement("td");
  node.setAttribute("role", "cell");
  node.dataset.label = column.label;
  tone(node, column.kind, value.tone);
  point(node, value.whole);
  node.textContent = value.text;
  return node;
};

const rows = new Map();
const fill = (table) => {
  const text = JSON.stringify(table.rows);
  if (rows.get(table.name) === text) return;
  rows.set(table.name, text);
  const made = table.rows.map((row) => {
    const node = document.createElement("tr");
    node.setAttribute("role", "row");
    node.append(...row.map((value, i) => cell(value, table.columns[i])));
    return node;
  });
  const node = by(table.name), none = table.rows.length === 0;
  node.tBodies[0].replaceChildren(...made);
  node.parentElement.hidden = by(`${table.name}-note`).hidden = none;
  by(`${table.name}-empty`).hidden = !none;
};

const notices = (texts) => {
  const list = by("notices");
  if (JSON.stringify([...list.children].map((n) => n.textContent)) === JSON.stringify(texts)) return;
  list.replaceChildren(...texts.map((text) => {
    const node = document.createElement("li");
    node.textContent = text;
    return node;
  }));
};

const show = (view) => {
  put(by("about"), view.about);
  put(by("state"), view.state.text);
  tone(by("state"), "state", view.state.tone);
  point(by("state"), view.state.whole);
  put(by("doing"), view.doing);
  put(by("at"), view.at);
  notices(view.notices);
  const gauge = view.gauge, part = (100 * gauge.part).toFixed(4);
  put(by("gauge-value"), gauge.value);
  put(by("gauge-rest"), gauge.rest);
  put(by("gauge-end"), gauge.ends[1]);
  tone(by("gauge"), "gauge", gauge.tone);
  by("part").setAttribute("width", part);
  by("meter").setAttribute("aria-valuenow", part);
  by("meter").setAttribute("aria-valuetext", `${gauge.value}, ${gauge.rest}`);
  for (const figure of view.figures) put(by(`figure-${figure.name}`), figure.value);
  if (view.curve && by("points")) {
    put(by("curve-words"), view.curve.words);
    put(by("curve-low"), view.curve.ends[0]);
    put(by("curve-high"), view.curve.ends[1]);
    by("points").setAttribute("points", view.curve.points);
    by("plot").hidden = view.curve.points === "";
  }
  if (view.stopped !== null && by("stop")) {
    by("stop").hidden = view.stopped;
    by("resume").hidden = !view.stopped;
  }
  view.tables.forEach(fill);
};

const look = async () => {
  try {
    const answer = await fetch("facts.json", { cache: "no-store", credentials: "omit" });
    if (!answer.ok) throw new Error(String(answer.status));
    show(await answer.json());
    by("gone").hidden = true;
    document.documentElement.dataset.looked = "yes";
  } catch {
    by("gone").hidden = false;
  }
  setTimeout(look, PAUSE);
};
look();
