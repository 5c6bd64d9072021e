// Names and focus that the theme leaves out.
document$.subscribe(({ body }) => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  body.querySelectorAll(".md-code__nav").forEach((nav, k) => nav.setAttribute("aria-label", `Code block ${k + 1}`));
  body.querySelectorAll("pre > code, .katex-display, .md-typeset__table").forEach((region) => region.setAttribute("tabindex", "0"));
  body.querySelectorAll("thead th:empty").forEach((head) => head.replaceWith(document.createElement("td")));
});
