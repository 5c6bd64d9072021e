// Names, focus and unbroken words that the theme leaves out.
document$.subscribe(({ body }) => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  body.querySelectorAll(".md-nav .md-nav[aria-labelledby]").forEach((nav) => {
    nav.setAttribute("aria-label", nav.parentElement.querySelector(".md-nav__link").textContent.trim());
    nav.removeAttribute("aria-labelledby");
  });
  body.querySelectorAll(".md-code__nav").forEach((nav, k) => nav.setAttribute("aria-label", `Code block ${k + 1}`));
  body.querySelectorAll("pre > code, .katex-display, .md-typeset__table").forEach((region) => region.setAttribute("tabindex", "0"));
  body.querySelectorAll(":not(pre) > code").forEach((code) => {
    if (!code.firstElementChild) code.innerHTML = code.innerHTML.replace(/--\w[-\w]*|\w+(-\w+)+/g, '<span class="whole">$&</span>');
  });
  body.querySelectorAll("thead th:empty").forEach((head) => head.replaceWith(document.createElement("td")));
});
