// What the highlighter knows about languages: families of comments and strings, and keywords. Data only.

const C_LIKE =
  "abstract as async await auto bool boolean break byte case catch char class const constexpr continue default " +
  "delete do double else enum export extends extern false final finally float fn for from func function go goto " +
  "if impl implements import in inline instanceof int interface let long match mod module mut namespace new nil " +
  "null nullptr of operator override package private protected pub public return self short signed sizeof static " +
  "struct super switch template this throw throws trait true try type typedef typename typeof undefined union " +
  "unsafe unsigned use using var virtual void volatile where while yield";

const PYTHON =
  "and as assert async await break case class continue def del elif else except False finally for from global if " +
  "import in is lambda match None nonlocal not or pass raise return self True try while with yield";

const SHELL =
  "case do done echo elif else esac exit export fi for function if in local read return set shift source then unset " +
  "until while";

const SQL =
  "add all alter and as asc between by case cast check column constraint count create cross database default delete " +
  "desc distinct drop else end exists foreign from full group having in index inner insert into is join key left " +
  "like limit not null on or order outer primary references right select set sum table then union unique update " +
  "values view when where with";

const RUBY =
  "alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo require " +
  "rescue retry return self super then true undef unless until when while yield";

const LUA =
  "and break do else elseif end false for function goto if in local nil not or repeat return then true until while";

const STRINGS = [/"(?:\\.|[^"\\\n])*"?/y, /'(?:\\.|[^'\\\n])*'?/y];
const SLASHES = [/\/\/[^\n]*/y, /\/\*[^]*?(?:\*\/|$)/y];
const HASHES = [/#[^\n]*/y];
const DASHES = [/--[^\n]*/y];

const words = (text) => new Set(text.split(" "));

const FAMILIES = {
  c: { comments: SLASHES, strings: [...STRINGS, /`(?:\\.|[^`\\])*`?/y], keywords: words(C_LIKE) },
  python: {
    comments: HASHES,
    strings: [/"""[^]*?(?:"""|$)/y, /'''[^]*?(?:'''|$)/y, ...STRINGS],
    keywords: words(PYTHON),
  },
  shell: { comments: HASHES, strings: [/"(?:\\.|[^"\\])*"?/y, /'[^']*'?/y], keywords: words(SHELL) },
  sql: { comments: [...DASHES, SLASHES[1]], strings: STRINGS, keywords: words(SQL), ignoresCase: true },
  ruby: { comments: HASHES, strings: STRINGS, keywords: words(RUBY) },
  lua: { comments: DASHES, strings: STRINGS, keywords: words(LUA) },
  css: {
    comments: [SLASHES[1]],
    strings: STRINGS,
    keywords: words("important media supports keyframes import from to"),
  },
  markup: {
    comments: [/<!--[^]*?(?:-->|$)/y],
    strings: STRINGS,
    keywords: new Set(),
    tags: /<\/?[A-Za-z][\w:.-]*|\/?>/y,
  },
  data: { comments: HASHES, strings: STRINGS, keywords: words("true false null yes no on off") },
  diff: { comments: [], strings: [], keywords: new Set(), lines: true },
};

const NAMES = {
  c:
    "c h cc cpp c++ cxx hpp cs csharp c# java js javascript mjs jsx ts typescript tsx go golang rust rs swift kotlin " +
    "kt scala php dart zig groovy objc glsl cuda proto",
  python: "python py python3 pyi cython pyx",
  shell: "sh bash zsh shell console fish dockerfile makefile make",
  sql: "sql sqlite postgres postgresql mysql",
  ruby: "ruby rb elixir ex crystal",
  lua: "lua haskell hs",
  css: "css scss less",
  markup: "html xml svg vue xhtml",
  data: "json jsonc json5 yaml yml toml ini conf properties nix",
  diff: "diff patch",
};

const FAMILY_OF = new Map(
  Object.entries(NAMES).flatMap(([family, names]) => names.split(" ").map((name) => [name, FAMILIES[family]])),
);

/** Return the family of a language by its name in a code fence, or null. */
export function familyOf(language) {
  return FAMILY_OF.get(language) ?? null;
}
