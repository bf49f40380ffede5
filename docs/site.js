// What the theme leaves out: a name for the search, boxes that scroll reached by the keyboard, and
// flags that no line of code ends within.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
const BOXES = ".md-typeset__scrollwrap, .md-typeset pre > code";
function reach() {
  for (const box of document.querySelectorAll(BOXES)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
for (const line of document.querySelectorAll(".md-typeset pre > code > span, .md-typeset :not(pre) > code")) {
  for (const text of [...line.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)) {
    text.replaceWith(...text.data.split(/(--\S+)/).map((part, i) => (i % 2 ? whole(part) : part)));
  }
}
function whole(word) {
  return Object.assign(document.createElement("span"), { className: "word", textContent: word });
}
addEventListener("load", reach);
addEventListener("resize", reach);
