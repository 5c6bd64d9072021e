// Typeset formulas that arithmatex marked, on every page. KaTeX is next to this file: nothing is fetched from other sites.
document$.subscribe(({ body }) => {
  renderMathInElement(body, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  });
});
