// Words of commands stay whole where a narrow screen breaks their lines: browsers break behind each hyphen of `--net`.
"use strict";
for (const code of document.querySelectorAll("pre > code.language-sh")) {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) {
    const parts = text.data.split(/(\s+)/).map((part, i) => {
      if (i % 2 || !part.includes("-")) return part;
      const word = document.createElement("span");
      word.className = "word";
      word.textContent = part;
      return word;
    });
    text.replaceWith(...parts);
  }
}
