// An MCP server made with the official SDK, whose tool `grow` gives it one more tool: over standard streams, or over
// streamable HTTP where PORT is set. Its argument is a file of a package that has the SDK.
const { createRequire } = require("node:module");
const { randomUUID } = require("node:crypto");
const http = require("node:http");

const sdk = createRequire(process.argv[2]);
const { McpServer } = sdk("@modelcontextprotocol/sdk/server/mcp.js");
const { StdioServerTransport } = sdk("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = sdk("@modelcontextprotocol/sdk/server/streamableHttp.js");

const server = new McpServer({ name: "grows", version: "1.0.0" });
const text = (text) => ({ content: [{ type: "text", text }] });
let grown = 0;
server.registerTool("grow", { description: "Gives this server one more tool." }, () => {
  grown += 1;
  const name = `new-${grown}`;
  server.registerTool(name, { description: "A new tool." }, () => text(`I am ${name}`));
  return text(name);
});

if (process.env.PORT) {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
  server.connect(transport).then(() => {
    const listener = http.createServer((request, response) => transport.handleRequest(request, response));
    listener.on("error", () => {
      console.error("the port is already in use");
      process.exit(1);
    });
    listener.listen(Number(process.env.PORT), "127.0.0.1", () => console.error("listening on port"));
  });
} else {
  server.connect(new StdioServerTransport());
}
