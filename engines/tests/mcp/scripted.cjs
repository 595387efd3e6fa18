// A server that does with what it does not know what some server does: `node scripted.cjs KIND [LOG]`.
// KIND: silent, exits, wrong, malformed, error or mute for how it takes unknown requests; strict:VERSION refuses all other
// versions; picky:VERSION ends at all others; modern and modern-exits know no `initialize`; banner writes other lines first.
const fs = require("fs");
const [kind, log] = process.argv.slice(2);
const [what, version] = kind.split(":");
const note = (line) => log && fs.appendFileSync(log, line + "\n");
note("start");
const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const tools = JSON.parse(process.env.TOOLS ?? '[{"name":"echo","inputSchema":{"type":"object"}}]');
if (what === "banner") process.stdout.write("Welcome!\n\n{not json\n[]\n");
const isModern = what.startsWith("modern");
const known = (id, method, params) => {
  if (method === "initialize" && !isModern) {
    const asked = params.protocolVersion;
    if (version && asked !== version && what !== "any") {
      if (what === "picky") process.exit(1);
      return say({ id, error: { code: -32602, message: "Unsupported protocol version" } });
    }
    const serverInfo = { name: "scripted", version: "1" };
    return say({ id, result: { protocolVersion: version ?? "2024-11-05", capabilities: { tools: {} }, serverInfo } });
  }
  if (method === "server/discover" && isModern) {
    const serverInfo = { name: "scripted", version: "1" };
    return say({ id, result: { resultType: "complete", ttlMs: 0, cacheScope: "private", supportedVersions: ["2026-07-28"], capabilities: { tools: {} }, serverInfo, _meta: { "io.modelcontextprotocol/serverInfo": serverInfo } } });
  }
  if (method === "tools/list") {
    if (what === "toolless") return say({ id, error: { code: -32601, message: "Method not found" } });
    if (what === "pages") return say({ id, result: { tools, nextCursor: "again" } });
    const page = Number(params?.cursor ?? 0);
    if (what === "paged") return say({ id, result: { tools: [tools[page]], ...(tools[page + 1] ? { nextCursor: `${page + 1}` } : {}) } });
    return say({ id, result: { tools, ...(isModern ? { resultType: "complete", ttlMs: 0, cacheScope: "private" } : {}) } });
  }
  if (method === "tools/call") {
    const text = `Echo: ${params.arguments?.message}`;
    return say({ id, result: { content: [{ type: "text", text }], ...(isModern ? { resultType: "complete" } : {}) } });
  }
  return unknown(id);
};
const unknown = (id) => {
  if (what === "silent" || what === "toolless") return;
  if (what === "wrong") return say({ id, result: { hello: "world" } });
  if (what === "malformed") return process.stdout.write("what?\n");
  if (what === "mute") return process.stdin.pause();
  if (what === "error" || what === "modern") return say({ id, error: { code: -32601, message: "Method not found" } });
  note("exits");
  process.exit(3);
};
let rest = "";
process.stdin.on("data", (data) => {
  const lines = (rest + data).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    const { id, method, params } = JSON.parse(line);
    if (!method) continue;
    note(method);
    if (id !== undefined) known(id, method, params);
  }
});
process.stdin.on("end", () => process.exit(0));
