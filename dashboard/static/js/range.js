// The range of time of the page: the picker's fields in the page's zone, a link that names it, a drag that sets it.
"use strict";
window.fenceline = window.fenceline || {};
{
  const NAMES = ["from", "to", "last"];
  const form = document.querySelector("[data-range-form]");

  const iso = (ms) => new Date(ms).toISOString().replace(".000Z", "Z");
  const asked = () => new URLSearchParams(location.search);
  const address = (query) => `${location.origin}${location.pathname}?${String(query).replaceAll("%3A", ":")}`;

  /** Show the page of a range: whole seconds around the dragged part. Places in a list belong to another range. */
  fenceline.showRange = (fromMs, toMs) => {
    const query = asked();
    for (const name of ["last", "before", "page"]) query.delete(name);
    query.set("from", iso(Math.floor(fromMs / 1000) * 1000));
    query.set("to", iso(Math.ceil(toMs / 1000) * 1000));
    location.assign(address(query));
  };

  /** The address of another page, in the range of this one. */
  fenceline.withRange = (url) => {
    const there = new URL(url, location.href);
    if (NAMES.some((name) => there.searchParams.has(name))) return there.href;
    for (const [name, value] of asked()) if (NAMES.includes(name)) there.searchParams.set(name, value);
    return there.href;
  };

  /** This page with both ends of its range, a moving end as of now; without a length all stored rows. */
  fenceline.absoluteLink = (lengthMs) => {
    const query = asked();
    if (query.has("to") || !form) return location.href;
    const now = Math.ceil(fenceline.now() / 1000) * 1000;
    query.delete("last");
    query.delete("page");
    if (!query.has("from") && lengthMs) query.set("from", iso(now - Number(lengthMs)));
    query.set("to", iso(now));
    return address(query);
  };

  // --- Fields of instants: as text, so that all browsers show 24 hours; in the zone that the page shows -----------
  const fields = [...document.querySelectorAll("input[data-zoned]")];
  const read = (field) => Date.parse(`${field.value.trim().replace(" ", "T").replace(/Z$/, "")}Z`);
  const utc = new Map(fields.map((field) => [field, read(field)]));
  const local = (ms) => new Date(ms + fenceline.shift(ms)).toISOString().slice(0, 19).replace("T", " ");
  const known = () => fields.filter((field) => !Number.isNaN(utc.get(field)));
  const showFields = () => known().forEach((field) => (field.value = local(utc.get(field))));

  for (const field of fields) {
    field.addEventListener("change", () => utc.set(field, read(field) - fenceline.shift(read(field))));
  }
  document.addEventListener("formdata", ({ target, formData }) => {
    for (const field of known()) if (field.form === target) formData.set(field.name, iso(utc.get(field)));
  });
  new MutationObserver(showFields).observe(document.documentElement, { attributeFilter: ["data-zone"] });
  showFields();
}
