// Copies a session with the vendor's SDK, once for each uuid on standard input, and prints the ids of the copies.
import { readFileSync } from "node:fs";

const [sdk, session] = process.argv.slice(2);
const { forkSession } = await import(`${sdk}/sdk.mjs`);
for (const upToMessageId of readFileSync(0, "utf8").split("\n")) {
  const { sessionId } = await forkSession(session, { upToMessageId });
  console.log(sessionId);
}
