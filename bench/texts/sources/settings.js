// Reads settings from a text of lines such as "name = value", and checks them against what is known.

const KINDS = {
  number: (text) => {
    const value = Number(text);
    if (text.trim() === "" || Number.isNaN(value)) {
      throw new Error(`${JSON.stringify(text)} is not a number`);
    }
    return value;
  },
  boolean: (text) => {
    if (text !== "yes" && text !== "no") {
      throw new Error(`${JSON.stringify(text)} must be yes or no`);
    }
    return text === "yes";
  },
  list: (text) => text.split(",").map((entry) => entry.trim()).filter((entry) => entry !== ""),
  text: (text) => text,
};

function stripComment(line) {
  const at = line.indexOf("#");
  return (at < 0 ? line : line.slice(0, at)).trim();
}

function parseLine(line, number) {
  const at = line.indexOf("=");
  if (at <= 0) {
    throw new Error(`line ${number} must have the form name = value`);
  }
  return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}

function readSettings(text, known) {
  const settings = {};
  for (const [name, setting] of Object.entries(known)) {
    settings[name] = setting.default;
  }
  text.split("\n").forEach((line, index) => {
    const stripped = stripComment(line);
    if (stripped === "") {
      return;
    }
    const [name, value] = parseLine(stripped, index + 1);
    if (!(name in known)) {
      throw new Error(`line ${index + 1}: there is no setting ${name}; known are ${Object.keys(known).join(", ")}`);
    }
    settings[name] = KINDS[known[name].kind](value);
  });
  return settings;
}

function writeSettings(settings, known) {
  const lines = [];
  for (const [name, value] of Object.entries(settings)) {
    const kind = known[name]?.kind;
    const text = kind === "boolean" ? (value ? "yes" : "no") : kind === "list" ? value.join(", ") : String(value);
    lines.push(`${name} = ${text}`);
  }
  return `${lines.join("\n")}\n`;
}

export { readSettings, writeSettings };
