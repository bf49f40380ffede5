// What the theme leaves out: a name for the search, and boxes that scroll reached by the keyboard.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
const BOXES = ".md-typeset__scrollwrap, .md-typeset pre > code";
function reach() {
  for (const box of document.querySelectorAll(BOXES)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("load", reach);
addEventListener("resize", reach);
