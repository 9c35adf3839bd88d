"use strict";
// Shows one response at a time and takes labels from the keyboard; the export is a JSON Lines file.
const rows = JSON.parse(document.getElementById("rows").textContent);
const labels = rows.map(() => null);
let at = 0;
const show = () => {
  const row = rows[at];
  const done = labels.filter((label) => label !== null).length;
  const names = { true: "good", false: "bad", null: "not labelled" };
  document.getElementById("place").textContent =
    `${at + 1} of ${rows.length}: ${names[labels[at]]}; ${done} labelled`;
  for (const key of ["prompt", "ground_truth", "response"]) {
    document.getElementById(key).textContent = row[key] ?? "";
  }
};
const move = (step) => {
  at = Math.min(rows.length - 1, Math.max(0, at + step));
  show();
};
const label = (value) => {
  labels[at] = value;
  move(1);
  show();
};
const save = () => {
  const lines = rows
    .map((row, number) => ({ ...row, label: labels[number] }))
    .filter((row) => row.label !== null)
    .map((row) => JSON.stringify(row));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "application/jsonl" }));
  link.download = "labelled.jsonl";
  link.click();
};
const keys = {
  g: () => label(true),
  b: () => label(false),
  u: () => label(null),
  ArrowRight: () => move(1),
  ArrowLeft: () => move(-1),
  s: save,
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});
show();
