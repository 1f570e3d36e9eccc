// Answers one JSON request a line: what the real libraries sign and verify.
import { createInterface } from "node:readline";
import { Webhooks } from "@octokit/webhooks";
import { Webhook } from "standardwebhooks";

const answers = {
  githubSign: ({ secret, body }) => new Webhooks({ secret }).sign(body),
  githubVerify: ({ secret, body, signature }) => new Webhooks({ secret }).verify(body, signature),
  standardSign: ({ secret, id, time, body }) => new Webhook(secret).sign(id, new Date(time * 1000), body),
  standardVerify: ({ secret, headers, body }) => {
    try {
      new Webhook(secret).verify(body, headers);
      return true;
    } catch {
      return false;
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  console.log(JSON.stringify(await answers[request.op](request)));
}
