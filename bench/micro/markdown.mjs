// Milliseconds to parse Markdown: the page's parser beside marked and markdown-it, for usual and for hostile texts.
//
//   npm install --prefix FOLDER marked markdown-it && node bench/micro/markdown.mjs FOLDER
//
// Only parsing is timed, without HTML or DOM nodes. Each text is parsed in a process of its own, which is ended after
// 20 s: some texts take a library minutes.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const SECONDS_MAX = 20;
const HERE = fileURLToPath(import.meta.url);
const ROOT = resolve(HERE, "../../..");

const TEXTS = {
  "chats, 60 KB": () => readFileSync(`${ROOT}/bench/texts/chats.txt`, "utf8").repeat(20).slice(0, 60_000),
  "`[` 20,000 times": () => "[".repeat(20_000),
  "`*a ` 20,000 times": () => "*a ".repeat(20_000),
  "`**a *b ` 10,000 times": () => "**a *b ".repeat(10_000),
  "`> ` 20,000 times": () => "> ".repeat(20_000),
  "`[a](<b` 10,000 times": () => "[a](<b".repeat(10_000),
  "backticks of growing length": () => Array.from({ length: 400 }, (_, i) => "`".repeat(i + 1)).join(" "),
  "`a\\|` 20,000 times, a table": () => `${"a|".repeat(20_000)}\n${"-|".repeat(20_000)}\n`,
};

const PARSERS = {
  llamad: async () => (await import(pathToFileURL(`${ROOT}/llamad/page/js/text/blocks.js`))).parseBlocks,
  marked: async (folder) => {
    const { marked } = await import(pathToFileURL(`${folder}/node_modules/marked/lib/marked.esm.js`));
    return (text) => marked.lexer(text);
  },
  "markdown-it": async (folder) => {
    const entry = createRequire(`${folder}/package.json`).resolve("markdown-it");
    const { default: MarkdownIt } = await import(pathToFileURL(entry));
    const parser = new MarkdownIt();
    return (text) => parser.parse(text, {});
  },
};

const [folder, parserName, textName] = process.argv.slice(2);
if (parserName) {
  const parse = await PARSERS[parserName](folder);
  const text = TEXTS[textName]();
  const times = [];
  for (let i = 0; i < 5 && (i === 0 || times[0] < 1000); i++) {
    const before = process.cpuUsage();
    parse(text);
    const used = process.cpuUsage(before);
    times.push((used.user + used.system) / 1000);
  }
  console.log(times.sort((a, b) => a - b)[Math.floor(times.length / 2)].toFixed(1));
} else {
  const names = Object.keys(PARSERS);
  console.log(`| CPU ms | ${names.join(" | ")} |\n| --- |${" ---: |".repeat(names.length)}`);
  for (const text of Object.keys(TEXTS)) {
    const cells = names.map((name) => {
      try {
        const options = { timeout: SECONDS_MAX * 1000, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] };
        return execFileSync(process.execPath, [HERE, resolve(folder ?? "."), name, text], options).trim();
      } catch (error) {
        return error.code === "ETIMEDOUT" ? `over ${SECONDS_MAX} s` : "failed";
      }
    });
    console.log(`| ${text} | ${cells.join(" | ")} |`);
  }
}
